"""The weights that ship with zenith-ae: one .safetensors file and one model card each."""
