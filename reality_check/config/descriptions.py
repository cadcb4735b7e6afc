"""What every key of a YAML means, in a sentence: shown by editors, by way of the JSON schema."""

from __future__ import annotations

_FILES = {
    "path": "Where the data lie; ~ and ${VARIABLE} are expanded, a .zip file is read as it is.",
    "size": "Short side of the decoded images, in pixels.",
    "channels": "3: RGB, 1: grey; every image is converted.",
    "resize": (
        "short_side: the short side becomes `size`, the whole image is kept. square: then the "
        "centre is cut out. none: as in the file."
    ),
    "on_broken": "What an unreadable image does. error: it is named. skip: left out and counted.",
}
_DATA = {
    "name": "What reports call the data set.",
    "reader": "How the images are read: docs/datasets.md.",
    "download": "Whether to fetch what is missing into `path`.",
    "check_counts": "Whether the data set must be whole: all its classes and images.",
}
_PUBLISHED_DATA = {**_DATA, **_FILES}

#: By the class of the schema, then by key.
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "Experiment": {
        "name": "Name of the experiment and of its folder, runs/NAME; by default the file's.",
        "dataset": "The images: a name (reality-check show datasets) or a mapping with a reader.",
        "model": "The network: a name (reality-check show models) or a mapping with a trunk.",
        "protocol": (
            "The rules that all methods share: a name (reality-check show protocols), or a mapping "
            "with a base and what differs."
        ),
        "methods": "What is compared: names (reality-check show methods) and mappings with a loss.",
        "controls": "Methods to run a second time under another name, with other seeds.",
        "claims": "What the experiment is to show, written down before it runs; decided by tests.",
        "published_results": "Figures that a paper printed, to be shown beside the measured ones.",
        "variant": "Which of the file's `variants` is taken.",
        "seed": "Every random choice derives from it.",
        "device": "auto, cpu, mps, cuda or cuda:N. auto takes a GPU where there is one.",
        "storage": (
            "Database of the searches: postgresql+psycopg://USER@HOST/NAME, where several machines "
            "work. By default studies.db in the output folder."
        ),
        "slurm": "What one worker's job asks of a SLURM cluster.",
        "studies": "Written by a run: what begins the names of its studies in a shared storage.",
        "code": "Written by a run: fingerprints of the images and of your own code.",
    },
    "GlyphsData": {
        **_DATA,
        "classes": "Number of characters, each a class.",
        "images_per_class": "Drawings of each character.",
        "size": "Side of the square images, in pixels.",
        "seed": "Draws the distortions.",
    },
    "ImageFolderData": _PUBLISHED_DATA,
    "CsvData": {**_PUBLISHED_DATA, "path": "A CSV file with the columns path, label and split."},
    "OmniglotData": _PUBLISHED_DATA,
    "MnistData": {**_DATA, "path": "Folder of the four idx files."},
    "CUB200Data": _PUBLISHED_DATA,
    "Cars196Data": _PUBLISHED_DATA,
    "OnlineProductsData": _PUBLISHED_DATA,
    "InShopData": _PUBLISHED_DATA,
    "NpzData": {
        **_DATA,
        "path": "The .npz file.",
        "images": "Name of its array of images, uint8 (N, H, W) or (N, H, W, C).",
        "labels": "Name of its array of integer labels, (N,).",
        "class_names": "Name of its array of class names, if it has one.",
        "where": "Rows to keep: the values that an array of one integer a row may have.",
        "test": "Rows of the official test, by such an array; the others train.",
    },
    "TensorsData": {
        **_DATA,
        "path": "The .npz, .npy, .safetensors or .parquet file, or the folder of save_to_disk.",
        "x": "Name of the samples; null finds x, X, features, embeddings, vectors, images or data.",
        "y": "Name of the labels; null finds y, labels, label, targets or target.",
        "names": "Name of the samples' names, if they have any.",
        "class_names": "Name of the class names, by integer label, if there are any.",
    },
    "TorchDatasetData": {
        **_DATA,
        "dataset": "Import path, such as my_data.Birds, or torchvision:NAME or pml:NAME.",
        "arguments": "Keyword arguments of its constructor.",
        "size": "Images are resized to squares of so many pixels; null: all have one size.",
    },
    "FunctionData": {
        **_DATA,
        "function": "Import path, such as my_data.read, or a name that an installed package adds.",
        "arguments": "Keyword arguments of the function.",
    },
    "Model": {
        "name": "What reports call the network.",
        "trunk": ("conv4, a name of torchvision or timm, or an import path: docs/trunks.md."),
        "arguments": "Keyword arguments of the trunk.",
        "weights": "none, imagenet, a tag of torchvision or timm, or the path of a file.",
        "last_stride": "1 takes the stride off the trunk's last stage: maps twice as large.",
        "remove_last_bn_relu": "Takes off the trunk's last BatchNorm and ReLU: paper or official.",
        "head": "A paper's head by name, instead of pooling, normalization and embedder.",
        "bn_relu_modules": "Pairs of BatchNorm and ReLU before the neck of SGSL's heads.",
        "pooling": "How maps become vectors.",
        "normalization": "What follows the pooling.",
        "embedder": "The last linear layer.",
        "neck": (
            "A BatchNorm without scale and shift behind the embedder: batch_norm with torch's eps "
            "and momentum, or heated_up_softmax with those of that paper."
        ),
        "preprocessing": "Changes of what the weights were trained with.",
    },
    "Embedder": {
        "bias": "Whether the layer has one.",
        "init": "default: torch's. kaiming_fan_out: deviation sqrt(2 / size), bias 0.",
        "layers": "Linear layers: 1, or a perceptron of more. May be searched, as the next three.",
        "hidden_size": "Width of the perceptron's layers but the last.",
        "hidden_normalization": "Behind those: none, batch_norm or layer_norm.",
        "dropout": "Probability of setting an input of a linear layer to 0.",
        "skip_if_equal": "Leaves the layer out where the features have the embedding's width.",
    },
    "Input": {
        "mean": "Subtracted from the pixels: a number, or one for each of 3 channels.",
        "std": "Divides what is left: a number, or one for each of 3 channels.",
        "scale": "Value of a white pixel before mean and std: 1 or 255.",
        "bgr": "Whether the trunk takes blue, green, red.",
    },
    "Protocol": {
        "name": "What reports call the rules.",
        "reference": "The protocol of the package that deviations are counted against.",
        "note": "Shown in the report.",
        "split": "Which classes train, validate and test.",
        "selects_by": "The validation metric that chooses epochs and trials, e.g. recall_at_1.",
        "selects_on": (
            "What chooses the epoch of the scored weights. validation: classes of the folds. last: "
            "none, the last epoch. test: the test classes, which is no estimate of anything."
        ),
        "training": "How each network is trained.",
        "search": "The hyper-parameter search of every method.",
        "reproductions": "Retrainings with fresh seeds of each winner, or each retrained trial.",
        "categories": "How a reproduction is scored: aggregate, ensemble, complete.",
        "complete": "The networks trained on all classes but the test's.",
        "final_metrics": "Metrics measured beside MAP@R, RP and P@1; nothing is selected by them.",
        "gallery": "Test images whose nearest neighbours the report shows for each method.",
        "published": "What the published protocol used; only compared, in the report.",
    },
    "Split": {
        "test_classes": (
            "half: the second half of the sorted ones. official: the data set's own. Or a list of "
            "their names."
        ),
        "rule": (
            "mlrc: the published folds. kfold: folds of equal size. halves: the first half trains, "
            "the second validates, as the only fold. own: those of validation."
        ),
        "validation": "Names of the classes that validate in each fold; the others train.",
        "folds": "Number of class-disjoint folds; 1 with the rule halves, and those of validation.",
    },
    "Search": {
        "trials": "Sets of hyper-parameters that each method tries; the same budget for all.",
        "sampler": (
            "Optuna's sampler: tpe (Bayesian), gp (Gaussian process), cmaes, random; qmc (Sobol's "
            "points), or the import path of one."
        ),
        "sampler_arguments": "Further keyword arguments of the sampler.",
        "trials_per_parameter": "Trials for each value that a method searches, in place of trials.",
        "repeats": "Independent searches of each method; a verdict is about their means.",
        "startup_trials": (
            "First trials that are drawn at random; at least as many as a method has "
            "hyper-parameters to search."
        ),
        "retrain_best": (
            "With budget: how many of the best trials are retrained; by default as few as it takes."
        ),
        "budget": (
            "Number of trials of a search that is estimated for, from all subsets of one random "
            "search."
        ),
    },
    "Complete": {
        "round_epochs_up_to": "Rounds the number of epochs, a mean over the folds, up.",
    },
    "PublishedSetup": {
        "model": "The published network, a name of `reality-check show models`.",
        "dataset": "The published data sets, by reader.",
        "images": "How the published data set decodes its files.",
        "methods": "Folders of methods whose search ranges were published for this data set.",
    },
    "Training": {
        "batch_size": "Images of a batch.",
        "iterations_per_epoch": "Batches of an epoch, or pass: as many as the images fill.",
        "max_epochs": "Epochs at most, of all phases.",
        "evaluate_every": "Epochs between two validations.",
        "patience": "Epochs past the best validation that end a phase; null: none ends early.",
        "embedding_size": "Width of the embedding; an ensemble has one for each fold.",
        "freeze_batchnorm": (
            "Keeps the running statistics of the trunk's BatchNorm; with_affine its scales and "
            "shifts too."
        ),
        "freeze_trunk_epochs": "First epochs that train embedder and loss alone.",
        "optimizers": "One each for trunk, embedder and loss.",
        "schedule": "How the learning rates change.",
        "augmentation": "Random changes of a training image.",
        "phases": "method: a second phase for methods that have one. two: for all.",
        "second_phase_share": "Part of max_epochs that is kept for the second phase.",
        "second_phase_epochs": "Length of the second phase, where it begins at a fixed epoch.",
        "autocast": "Mixed precision of the network; losses compute in float32.",
        "tf32": "Whether float32 on a GPU may be TF32, whose numbers have 10 bits instead of 23.",
        "gradient_clip": "Bounds each component of the network's gradient.",
        "gradient_clip_norm": "Bounds the length of the network's gradient.",
    },
    "Optimizers": {
        "trunk": "Of the trunk's parameters.",
        "embedder": "Of the head's and the embedder's parameters.",
        "loss": "Of the loss's own parameters, such as proxies.",
    },
    "Optimizer": {
        "name": "One of torch.optim, or the import path of a class.",
        "lr": "Learning rate; a range is searched by every method.",
        "weight_decay": "L2 penalty (AdamW: decoupled).",
        "arguments": "Further keyword arguments, such as momentum.",
    },
    "Schedule": {
        "kind": "constant, step, cosine or polynomial.",
        "at": "step: the epochs after which the factor multiplies.",
        "every": "step: the number of epochs after which the factor multiplies.",
        "factor": "step: what multiplies the learning rates.",
        "end": "cosine, polynomial: the factor reached at max_epochs.",
        "power": "polynomial: the exponent.",
        "per": "Whether cosine and polynomial change each epoch or each iteration.",
        "warmup_iterations": "First iterations, in which the rates rise.",
        "warmup_start": "The factor that the rise begins with.",
    },
    "Augment": {
        "rotation": "Largest angle, in degrees.",
        "scale": "[low, high]: enlargement of the content, drawn log-uniformly.",
        "shear": "Largest shear angle along each axis, in degrees.",
        "translation": "Largest shift along each axis, as a fraction of the side.",
        "horizontal_flip": "Probability of mirroring left and right.",
        "resized_crop_scale": "[low, high]: fraction of the area that a random crop keeps.",
        "resized_crop_ratio": "[low, high]: width / height of that crop.",
        "random_crop": "Whether the crop lies anywhere instead of in the centre.",
        "brightness": "b draws the factor from [1 - b, 1 + b].",
        "contrast": "The same, for the blend with the mean grey.",
        "saturation": "The same, for the blend with the grey image.",
        "hue": "Largest turn of the hue, in full circles.",
        "grayscale": "Probability of turning a colour image grey.",
        "crop_size": "Side of what enters the trunk, in pixels; null keeps the image's size.",
        "resize": "Before the crop: the short side, or [height, width], in pixels.",
        "interpolation": "Of resizing and of crops.",
        "noise": "Of vectors: deviation, as a fraction of the vector's root mean square.",
        "dropout": "Of vectors: probability of setting a value to 0.",
    },
    "Method": {
        "name": "Name of the method, of its folder and in the report.",
        "loss": "A name (reality-check show losses) or an import path such as my_losses.MyLoss.",
        "arguments": (
            "Of the loss's constructor. A plain value is fixed; {low: 0, high: 1} is searched, "
            "also with log: true or int: true; {choices: [a, b]} too."
        ),
        "miner": "A name (reality-check show miners), or {class: NAME, argument: value}.",
        "samples_per_class": "Images of each class in a batch; null: without regard to classes.",
        "learning_rates": "The method's own, where they are not the protocol's.",
        "loss_weight_decay": "Of the loss's own parameters; null is the protocol's.",
        "normalize_embeddings": "Whether embeddings have length 1 when they are measured.",
        "before_training": "What is fitted to the training images before the first step.",
        "schedules": "Values of the loss that change gradually, by name.",
        "phase2": "What changes when validation has reached its first plateau.",
        "model": "Keys of the model that differ for this method alone.",
        "training": "Keys of the protocol's training that differ for this method alone.",
        "trials": "Trials of each of its searches; written by trials_per_parameter.",
        "starts_from": "The method whose winners are the first trials of this one's searches.",
        "warm_start": "Values of each search's first trial, or the folder whose best has them.",
        "control_of": "The method that this is a second copy of; written by `controls`.",
        "note": "Shown in the report.",
    },
    "WarmStart": {
        "values": "Of the first trial of each search, by dotted name.",
        "folder": "Where they are from.",
    },
    "Start": {
        "method": "Name of the simpler method.",
        "neutral": "By dotted name, the values at which this method is the simpler one.",
    },
    "LearningRates": {
        "trunk": "Of the trunk; null is the protocol's, 0 freezes it.",
        "embedder": "Of the head and the embedder.",
        "loss": "Of the loss's own parameters.",
        "loss_parts": "Of parameters that a method of the loss returns, by that method's name.",
    },
    "BeforeTraining": {
        "batch_statistics": "One pass that learns nothing but the statistics of BatchNorms.",
        "proxies": "Where those of the loss begin: random, or class_means of the embeddings.",
    },
    "ValueSchedule": {
        "kind": "constant, step, linear or cosine.",
        "at": "Of steps: after which epochs.",
        "every": "Of steps: after each so many epochs.",
        "epochs": "Of linear and cosine: how long it changes; null: max_epochs.",
        "factor": "What a step multiplies by, or what a line or a cosine leads to.",
        "per": "Whether it changes each epoch or each iteration.",
    },
    "SecondPhase": {
        "arguments": "Values of the loss that are replaced.",
        "factors": "What multiplies values of the loss.",
        "lr_factor": "What multiplies the learning rates of trunk and embedder.",
        "loss_lr_factor": "What multiplies the loss's learning rate; null: lr_factor.",
    },
    "Range": {
        "low": "Smallest value.",
        "high": "Largest value.",
        "log": "Whether it is searched on a logarithmic scale.",
        "int": "Whether only whole numbers are tried.",
    },
    "Choices": {"choices": "The values that are tried."},
    "Claim": {
        "name": "Name of the claim.",
        "source": "Where it is claimed.",
        "text": "The claim in words.",
        "pairs": "[first, second]: methods that are compared.",
        "test": "above, not_below or equal: what the first is said to be, next to the second.",
        "margin": "A part of the second one's score (5 %), or points; of a ratio in its unit.",
        "overturned_by": "What was run after the verdict and turned it around.",
        "categories": "In which categories.",
        "metrics": "By which metrics.",
        "than": "Another category or metric for the second method.",
    },
    "Than": {"category": "Null is the first method's.", "metric": "Null is the first method's."},
    "PublishedResults": {
        "paper": "Folder of configs/papers/, or a citation.",
        "item": "The table or figure.",
        "spread": "What the second number of a figure is.",
        "notes": "Errata, and how unclear places were read.",
        "gaps": "What this experiment does otherwise than the paper.",
        "results": "Figures by category, method and metric: a number or [value, spread].",
        "config": "Written by a run: the file that the experiment was made from.",
    },
    "Slurm": {
        "partition": "Where jobs are queued.",
        "hours": "Time limit of a job; a worker that reaches it is queued again.",
        "notice_seconds": "How long before the limit a worker is told to write its checkpoint.",
        "gpus": "Of a job; by default 1, or 0 with device: cpu.",
        "cpus": "Cores of a job.",
        "memory": "Of a job, as SLURM writes it: 16G.",
        "account": "Who is charged.",
        "qos": "Quality of service.",
        "setup": "Shell lines before the worker starts, such as module load cuda.",
        "extra": "Other options of sbatch, without the leading dashes.",
    },
}
