"""What `kvpulse bench kernels` measures: cases, how they are timed, and the figures they give."""
