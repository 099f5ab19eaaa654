"""LayerNorm of rows."""
