"""Keys of config.json and of GGUF that do not change what a model computes when it generates.

A key that is neither read nor listed here is refused if it says anything, so that an unknown model
variant fails at once and by name, not by writing nonsense.
"""

INERT_CONFIG = frozenset((
    # What it is, and how it was saved.
    "architectures", "model_type", "_name_or_path", "name_or_path", "transformers_version",
    "torch_dtype", "dtype", "is_llama_config",
    "transformers.js_config", "unsloth_version", "unsloth_fixed", "_commit_hash",
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal",
    "_experts_implementation",
    # Training only.
    "initializer_range", "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop",
    "pretraining_tp", "use_cache", "gradient_checkpointing", "max_window_layers",
    "tie_encoder_decoder",
    # Tokens, which the tokenizer stage reads.
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
    "decoder_start_token_id",
    # What callers of transformers get back.
    "return_dict", "output_attentions", "output_hidden_states", "return_dict_in_generate",
    "output_scores", "is_decoder", "is_encoder_decoder", "add_cross_attention",
    "chunk_size_feed_forward", "id2label", "label2id", "problem_type", "finetuning_task",
    "task_specific_params", "torchscript", "tokenizer_class", "prefix", "use_bfloat16",
    # Generation defaults of old configs.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
))  # fmt: skip

# Without the architecture's name in front.
INERT_KEYS = frozenset((
    "tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "pooling_type",
))  # fmt: skip
