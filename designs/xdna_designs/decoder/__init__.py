"""The decoder overlay: weights stream past resident workers, tokens feed back on the device."""
