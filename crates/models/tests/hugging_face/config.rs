//! Which configs are read, and as which models.

use serde_json::{Value, json};
use zoo_models::weights::hugging_face::{Family, ModelFolder};
use zoo_models::{LayerMechanisms, PairLayout, PositionEncoding, Rotary, RotaryScaling};

use crate::{Folder, gpt2, llama, with};

/// Files of earlier versions have other keys for the same model.
#[test]
fn keys_of_earlier_versions_have_the_same_meaning() {
    let open = |config: &Value| {
        let folder = Folder::new();
        folder.write("config.json", &config.to_string());
        let opened = ModelFolder::open(&folder.0);
        opened
            .unwrap_or_else(|error| panic!("{error}"))
            .config()
            .spec
            .clone()
    };
    let scaling = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16, "rope_type": "llama3",
    });
    let mut parameters = scaling.clone();
    parameters["rope_theta"] = json!(5e5);
    let former = open(&with(
        llama(),
        &[("rope_theta", json!(5e5)), ("rope_scaling", scaling)],
    ));
    assert_eq!(
        former,
        open(&with(llama(), &[("rope_parameters", parameters)]))
    );
    let rotary = Rotary::new(5e5)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::llama3(8.0, 16));
    assert_eq!(former.positions, PositionEncoding::Rotary(rotary));
    let dynamic = json!({"type": "linear", "factor": 2.0});
    let linear = open(&with(llama(), &[("rope_scaling", dynamic)]));
    let rotary = Rotary::new(1e4)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::linear(2.0));
    assert_eq!(linear.positions, PositionEncoding::Rotary(rotary));
    assert_eq!(open(&gpt2()).positions, PositionEncoding::learned(8));

    // A window of 3 keys is a query's own and two before it.
    let names =
        |mechanisms: &LayerMechanisms| serde_json::to_value(mechanisms).expect("serializable");
    let window = json!({"kind": "sliding-window", "window": 2});
    let mistral = [
        ("model_type", json!("mistral")),
        ("architectures", json!(["MistralForCausalLM"])),
    ];
    let mistral = with(with(llama(), &mistral), &[("sliding_window", json!(3))]);
    assert_eq!(names(&open(&mistral).attention), window);
    let all = open(&with(mistral, &[("sliding_window", Value::Null)]));
    assert_eq!(names(&all.attention), json!({"kind": "flash"}));
    let qwen = [
        ("model_type", json!("qwen2")),
        ("architectures", json!(["Qwen2ForCausalLM"])),
        ("num_hidden_layers", json!(3)),
        ("sliding_window", json!(3)),
        ("max_window_layers", json!(1)),
    ];
    let qwen = with(llama(), &qwen);
    assert_eq!(names(&open(&qwen).attention), json!({"kind": "flash"}));
    let windows = with(qwen, &[("use_sliding_window", json!(true))]);
    let expected = json!([{"kind": "flash"}, window, window]);
    assert_eq!(names(&open(&windows).attention), expected);
    let types = json!(["full_attention", "sliding_attention", "sliding_attention"]);
    let listed = with(
        windows,
        &[("layer_types", types), ("max_window_layers", json!(0))],
    );
    assert_eq!(names(&open(&listed).attention), expected);
}

#[test]
fn configs_that_are_not_implemented_are_rejected_with_the_key() {
    let rope = |parameters: Value| with(llama(), &[("rope_parameters", parameters)]);
    let qwen2 = with(
        llama(),
        &[
            ("model_type", json!("qwen2")),
            ("architectures", json!(["Qwen2ForCausalLM"])),
        ],
    );
    let mut no_type = llama();
    no_type
        .as_object_mut()
        .expect("an object")
        .remove("model_type");
    let mut no_size = llama();
    no_size
        .as_object_mut()
        .expect("an object")
        .remove("hidden_size");
    for (config, message) in [
        (
            with(llama(), &[("model_type", json!("mamba"))]),
            "model_type must be one of gpt2, llama, mistral, qwen2, qwen3, got \"mamba\"",
        ),
        (no_type, "model_type is missing"),
        (no_size, "hidden_size is missing"),
        (
            with(
                llama(),
                &[("architectures", json!(["LlamaForSequenceClassification"]))],
            ),
            "architectures must be [\"LlamaForCausalLM\"], got [\"LlamaForSequenceClassification\"]",
        ),
        (
            with(llama(), &[("hidden_act", json!("gelu"))]),
            "hidden_act must be \"silu\", got \"gelu\"",
        ),
        (
            with(llama(), &[("attention_bias", json!(true))]),
            "attention_bias must be false, got true",
        ),
        (
            with(llama(), &[("mlp_bias", json!(true))]),
            "mlp_bias must be false, got true",
        ),
        (
            with(llama(), &[("residual_multiplier", json!(0.5))]),
            "unknown key residual_multiplier = 0.5",
        ),
        (
            with(llama(), &[("sliding_window", json!(4))]),
            "unknown key sliding_window = 4",
        ),
        (
            with(llama(), &[("quantization_config", json!({"bits": 4}))]),
            "quantization_config must be null, got {\"bits\":4}",
        ),
        (
            with(llama(), &[("hidden_size", json!("4"))]),
            "hidden_size must be an integer of at least 0, got \"4\"",
        ),
        (
            with(llama(), &[("hidden_size", json!(5))]),
            "d_model = 5 must be a multiple of n_heads = 2",
        ),
        (
            with(llama(), &[("num_hidden_layers", json!(1_000_000_000))]),
            "layers must be",
        ),
        (
            rope(json!({"rope_type": "dynamic", "factor": 2.0})),
            "rope_parameters.rope_type must be \"default\", \"linear\", \"yarn\" or \"llama3\", got \
          \"dynamic\"",
        ),
        (
            rope(json!({"rope_type": "linear"})),
            "rope_parameters.factor is missing",
        ),
        (
            rope(json!({"rope_type": "linear", "factor": 0.5})),
            "scaling.factor must be at least 1",
        ),
        (
            rope(json!({"rope_type": "default", "beta_fast": 4.0})),
            "unknown key rope_parameters.beta_fast = 4.0",
        ),
        (
            rope(json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
            "rope_parameters.partial_rotary_factor must be 1.0, got 0.5",
        ),
        (
            rope(json!({"rope_type": "yarn", "factor": 2.0, "mscale": 0.7})),
            "rope_parameters.mscale must be null, got 0.7",
        ),
        (
            with(rope(json!({})), &[("rope_scaling", json!({}))]),
            "rope_scaling must be absent beside rope_parameters",
        ),
        (
            with(qwen2.clone(), &[("layer_types", json!([]))]),
            "layer_types must be a list of num_hidden_layers = 1 types, got 0 types",
        ),
        (
            with(
                qwen2.clone(),
                &[("layer_types", json!(["chunked_attention"]))],
            ),
            "layer_types must be a list of \"full_attention\" and \"sliding_attention\", got \
          \"chunked_attention\"",
        ),
        (
            with(
                qwen2.clone(),
                &[("layer_types", json!(["sliding_attention"]))],
            ),
            "sliding_window must be set, for the layers with a window, got null",
        ),
        (
            with(qwen2, &[("sliding_window", json!(0))]),
            "sliding_window must be at least 1, got 0",
        ),
        (
            with(gpt2(), &[("activation_function", json!("tanh"))]),
            "activation_function must be \"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or \"relu\", got \
          \"tanh\"",
        ),
        (
            with(gpt2(), &[("scale_attn_weights", json!(false))]),
            "scale_attn_weights must be true, got false",
        ),
        (json!([1]), "expected a JSON object, got [1]"),
    ] {
        let error = Folder::with(&config, vec![]).error();
        assert!(error.starts_with("DIR/config.json: "), "{error}");
        assert!(error.contains(message), "{error}\nexpected: {message}");
        assert!(error.contains("\n  help: "), "{error}");
    }
    let folder = Folder::new();
    folder.write("config.json", "{\"model_type\": ");
    let error = folder.error();
    assert!(error.contains("DIR/config.json: invalid JSON"), "{error}");
}

/// The keys of published models, as earlier versions of transformers wrote them.
#[test]
fn configs_of_published_models_are_read() {
    let gpt2 = json!({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
        "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
        "summary_use_proj": true, "vocab_size": 50257,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    });
    let smol = json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
        "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
        "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
        "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_interleaved": false, "rope_scaling": null,
        "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152,
    });
    let llama = json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0",
        "use_cache": true, "vocab_size": 128256,
    });
    let mistral = json!({
        "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 4096,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0",
        "use_cache": true, "vocab_size": 32000,
    });
    let qwen2 = json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
        "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936,
    });
    let qwen3 = json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936,
    });
    for (config, family, layers, ends, biases) in [
        (gpt2, Family::Gpt2, 12, vec![50256], [true, true]),
        (smol, Family::Llama, 30, vec![0], [false, false]),
        (
            llama,
            Family::Llama,
            16,
            vec![128_001, 128_008, 128_009],
            [false, false],
        ),
        (mistral, Family::Mistral, 32, vec![2], [false, false]),
        (qwen2, Family::Qwen2, 24, vec![151_643], [false, true]),
        (qwen3, Family::Qwen3, 28, vec![151_645], [false, false]),
    ] {
        let folder = Folder::new();
        folder.write("config.json", &config.to_string());
        let opened = ModelFolder::open(&folder.0).unwrap_or_else(|error| panic!("{error}"));
        let spec = &opened.config().spec;
        assert_eq!((opened.family(), spec.layers), (family, layers));
        assert_eq!(opened.end_tokens(), ends);
        assert_eq!([spec.bias, spec.qkv_bias.unwrap_or(spec.bias)], biases);
        assert_eq!(spec.qk_norm, family == Family::Qwen3);
    }
}
