"""A model as a folder of Hugging Face's layout: config.json, safetensors, tokenizer.json."""
