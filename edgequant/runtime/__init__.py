"""A model on a device, ready to be asked. It knows token ids; text and files come from outside."""
