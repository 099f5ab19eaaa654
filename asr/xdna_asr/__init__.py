"""Speech recognition: Whisper written once on a small op set, on the CPU now and on AMD's XDNA NPU next."""
