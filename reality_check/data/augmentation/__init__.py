"""Transforms of batches of images, on the device."""
