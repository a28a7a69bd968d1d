"""The MLPs whose training steps are compared."""

SIZES = {  # batch, width, layers
    "tiny": (32, 64, 4),
    "small": (128, 256, 8),
    "medium": (2048, 1024, 8),
    "wide": (8192, 4096, 4),
    "deep": (64, 128, 32),
}
CPU_SIZES = ["tiny", "small", "deep"]
