//! Writes the seed corpus to `corpus/`: the project's configs, and a small file of every supported
//! format.

use std::io::{Cursor, Write as _};
use std::path::Path;
use std::{fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;
use zoo_config::{TEMPLATES, template};
use zoo_data::TokenizerConfig;
use zoo_fuzz::write_seed;

const TSV: &str = "long time\t好久\t3\nno see\t不见\t4\n\n  a \t b\n";
const CSV: &str = "label,text,more\npos,\"a, \"\"b\"\"\nc\",1\nneg,d\n";
const JSON: &str = "{\"label\":\"pos\",\"text\":\"a\\u00e9\"}\n{\"label\":3,\"text\":\"b\"}\n";
const NAMES: &str = "pos/1.txt:good\nneg/2.txt:bad\nneg/3.txt.gz:x\n../a.txt:out\nc:\\a.txt:out\n";
const FLAGS: &str = "model.layers=4\nmodel.encoder_attention={kind=\"linear\"}\n\
    backend.devices=[0]\noptimizer.kind=sgd\nmodel.decoder_attention.window=3\n";

/// Components of Hugging Face tokenizers that replace ours, each as a key and its value.
const COMPONENTS: &str = r###"model {"type":"Unigram","unk_id":1,"vocab":[["<pad>",0.0],["<unk>",0.0],["<s>",0.0],["</s>",0.0],["a",-1.5],["▁lo",-2.0]],"byte_fallback":false}
model {"type":"WordPiece","unk_token":"<unk>","continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":4,"##b":5}}
model {"type":"BPE","unk_token":"<unk>","continuing_subword_prefix":"##","end_of_word_suffix":"/w","fuse_unk":true,"vocab":{"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":4,"##b":5,"ab":6},"merges":["a ##b"]}
pre_tokenizer {"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},{"type":"Digits","individual_digits":true},{"type":"Punctuation","behavior":"Isolated"},{"type":"UnicodeScripts"}]}
pre_tokenizer {"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},{"type":"Split","pattern":{"Regex":"(?=o)"},"behavior":"MergedWithNext","invert":false},{"type":"FixedLength","length":2},{"type":"CharDelimiterSplit","delimiter":"e"}]}
normalizer {"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"o"},"content":"00"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"StripAccents"},{"type":"NFKD"},{"type":"Nmt"},{"type":"ByteLevel"},{"type":"Prepend","prepend":"▁"}]}
normalizer {"type":"Precompiled","precompiled_charsmap":"ALQCAACEAAAAAACAAQAAgMz8AgC4BQAAhyIAgMzkAgC4PQAAeyIAgMzsAgC4BQAAiyIAgMw8AADNvAAAmwkAgJ4JAIA="}
decoder {"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]}
decoder {"type":"CTC","pad_token":"<pad>","word_delimiter_token":"|","cleanup":true}
decoder {"type":"WordPiece","prefix":"##","cleanup":true}
post_processor {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]}}}
added_tokens [{"id":3,"content":"</s>","single_word":false,"lstrip":true,"rstrip":true,"normalized":false,"special":true},{"id":8,"content":"see","single_word":true,"lstrip":false,"rstrip":false,"normalized":true,"special":false}]"###;

fn main() -> io::Result<()> {
    const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
    let put = |target: &str, name: &str, bytes: &[u8]| write_seed(PACKAGE, target, name, bytes);
    for entry in fs::read_dir(Path::new(PACKAGE).join("../configs"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".toml") {
            put("config", &name, &fs::read(&path)?)?;
        }
    }
    for name in TEMPLATES {
        let text = template(name).map_err(io::Error::other)?;
        put("config", name, text.as_bytes())?;
    }
    put("flags", "flags", FLAGS.as_bytes())?;
    for choice in 0..3 {
        let bytes = with_choice(choice, TSV.as_bytes());
        put("parallel", &format!("table{choice}"), &bytes)?;
    }
    put("parallel", "two", b"\x03long time\nno see\0\xe5\xa5\xbd\nb")?;
    let table = |delimiter: &str| CSV.replace(',', delimiter).into_bytes();
    let formats = [TSV.into(), table(","), table("\t"), table(";"), JSON.into()];
    for (choice, bytes) in (0..).zip(&formats) {
        let name = format!("format{choice}");
        put("labelled", &name, &with_choice(choice, bytes))?;
    }
    put("archive", "names", NAMES.as_bytes())?;
    put("packed", "gz", &with_choice(0, &gz(TSV.as_bytes())?))?;
    put("packed", "large", &with_choice(0, &gz(&[b'a'; 100_000])?))?;
    put("packed", "zip", &with_choice(1, &zip(&[("a.txt", "a")])?))?;
    let classes = [
        ("in/pos/1.txt", "good"),
        ("in/neg/2.txt", "bad"),
        ("in/README", "x"),
    ];
    put("packed", "classes", &with_choice(2, &zip(&classes)?))?;
    for (name, config) in [
        ("chars", TokenizerConfig::chars()),
        ("words", TokenizerConfig::words()),
        ("pieces", TokenizerConfig::bpe(24).with_byte_fallback(false)),
    ] {
        let tokenizer = config.train(["long time", "no see"]);
        let json = tokenizer.and_then(|tokenizer| tokenizer.to_json());
        let json = json.map_err(io::Error::other)?;
        put("tokenizer", name, json.as_bytes())?;
        let components = COMPONENTS.lines().filter_map(|line| line.split_once(' '));
        for (i, (key, value)) in components.enumerate() {
            let mut changed: serde_json::Value = serde_json::from_str(&json)?;
            changed[key] = serde_json::from_str(value)?;
            let bytes = serde_json::to_vec(&changed)?;
            put("tokenizer", &format!("{name}-{i}"), &bytes)?;
        }
    }
    Ok(())
}

fn with_choice(choice: u8, bytes: &[u8]) -> Vec<u8> {
    [&[choice], bytes].concat()
}

fn gz(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn zip(files: &[(&str, &str)]) -> io::Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(vec![]));
    for (name, text) in files {
        writer.start_file(*name, SimpleFileOptions::default())?;
        writer.write_all(text.as_bytes())?;
    }
    Ok(writer.finish()?.into_inner())
}
