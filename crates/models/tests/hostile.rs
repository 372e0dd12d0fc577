//! Weight files that declare more data than they have must be rejected quickly, without allocating
//! what they declare. All files are read on the host; no backend is involved.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use burn::tensor::TensorData;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};
use zoo_models::weights::Weights;

/// Far more than a file of a few kilobytes needs, far less than these files declare.
const MAX_TIME: Duration = Duration::from_secs(30);
const MAX_MEMORY: u64 = 256 << 20;

/// A temporary file that is deleted on drop.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let name = format!("zoo-hostile-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Peak resident set size of this process, where the system reports it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// A tensor of a PyTorch file: key, number of `f32` in its storage, shape and strides.
struct View<'a>(&'a str, u32, &'a [u64], &'a [u64]);

/// Writes a file as `torch.save` does, with all tensors as views of storage 0.
fn write_pytorch(path: &Path, views: &[View<'_>], storage: &[u8]) {
    let mut pickle = b"\x80\x02}".to_vec();
    for view in views {
        pickle.extend(pickle_view(view));
    }
    pickle.push(b'.');
    write_archive(path, &pickle, storage, CompressionMethod::Stored);
}

fn write_archive(path: &Path, pickle: &[u8], storage: &[u8], pickle_method: CompressionMethod) {
    let mut zip = ZipWriter::new(fs::File::create(path).expect("a new file"));
    let stored = CompressionMethod::Stored;
    for (name, bytes, method) in [
        ("archive/data.pkl", pickle, pickle_method),
        ("archive/version", b"3\n", stored),
        ("archive/data/0", storage, stored),
    ] {
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(name, options).expect("a new entry");
        zip.write_all(bytes).expect("writable");
    }
    zip.finish().expect("writable");
}

/// `dict[name] = torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`.
fn pickle_view(View(name, elements, shape, strides): &View<'_>) -> Vec<u8> {
    let text = |text: &str| {
        let length = (text.len() as u32).to_le_bytes();
        [b"X", &length[..], text.as_bytes()].concat()
    };
    let integer = |value: u64| [b"\x8a\x08", &value.to_le_bytes()[..]].concat();
    let tuple = |values: &[u64]| {
        let items: Vec<u8> = values.iter().flat_map(|it| integer(*it)).collect();
        [b"(", &items[..], b"t"].concat()
    };
    [
        text(name),
        b"ctorch._utils\n_rebuild_tensor_v2\n(".to_vec(),
        [b"(", &text("storage")[..]].concat(),
        b"ctorch\nFloatStorage\n".to_vec(),
        text("0"),
        text("cpu"),
        integer(u64::from(*elements)),
        b"tQK\0".to_vec(),
        tuple(shape),
        tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtRs".to_vec(),
    ]
    .concat()
}

fn empty_weights(shape: [usize; 2]) -> Weights {
    let data = TensorData::new(Vec::<f32>::new(), shape);
    Weights::from_tensors([("a.weight".to_owned(), data)])
}

/// Writes a safetensors header with one tensor, without its data.
fn write_safetensors(path: &Path, shape: &str, offsets: &str) {
    let header =
        format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}");
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    fs::write(path, bytes).expect("a new file");
}

#[test]
fn files_that_declare_too_much_are_rejected_quickly() {
    type Make = fn(&Path);
    let cases: [(&str, Make, &str); 8] = [
        (
            "stride 0.pt",
            // Four bytes expanded to 1 GiB.
            |path| {
                let views = [View("w", 1, &[1 << 14, 1 << 14], &[0, 0])];
                write_pytorch(path, &views, &[0; 4]);
            },
            "tensor w declares shape [16384, 16384], but the file has",
        ),
        (
            "shared storage.pt",
            // 4 MiB referenced as 1 GiB.
            |path| {
                let names: Vec<String> = (0..256).map(|i| format!("w{i}")).collect();
                let view = |name| View(name, 1 << 20, &[1 << 20], &[1]);
                let views: Vec<_> = names.iter().map(|name| view(name)).collect();
                write_pytorch(path, &views, &vec![0; 4 << 20]);
            },
            "the tensors up to",
        ),
        (
            "overlapping windows.pt",
            |path| {
                let views = [View("w", 20_000, &[10_000, 10_000], &[1, 1])];
                write_pytorch(path, &views, &[0; 80_000]);
            },
            "tensor w declares shape [10000, 10000]",
        ),
        (
            "no rows.pt",
            |path| {
                let views = [View("w", 1, &[0, 1 << 62], &[1, 1])];
                write_pytorch(path, &views, &[0; 4]);
            },
            "tensor w declares shape [0, 4611686018427387904]",
        ),
        (
            "compressed pickle.pt",
            // A few kilobytes that expand to 16 MiB of empty lists.
            |path| {
                let pickle = [b"\x80\x02", &vec![b']'; 16 << 20][..], b"."].concat();
                write_archive(path, &pickle, &[0; 4], CompressionMethod::Deflated);
            },
            "entry 0 of the archive declares 16777219 bytes",
        ),
        (
            "no rows.safetensors",
            |path| empty_weights([0, 1 << 62]).write(path).expect("a new file"),
            "tensor a.weight declares shape [0, 4611686018427387904]",
        ),
        (
            "no rows.bpk",
            |path| empty_weights([0, 1 << 62]).write(path).expect("a new file"),
            "tensor a.weight declares shape [0, 4611686018427387904]",
        ),
        (
            "overflow.safetensors",
            |path| write_safetensors(path, "[4294967296,4294967296]", "[0,0]"),
            "invalid or truncated safetensors file",
        ),
    ];
    for (name, make, expected) in cases {
        let file = TestFile::new(name);
        make(&file.0);
        let before = peak_memory();
        let start = Instant::now();
        let result = Weights::read(&file.0);
        let took = start.elapsed();
        let error = result.map(|_| ()).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        let has_help = error.contains("\n  help: get the file again");
        let is_too_large = !expected.starts_with("invalid");
        assert_eq!(has_help, is_too_large, "{name}: {error}");
        assert!(took < MAX_TIME, "{name}: {took:?}");
        if let (Some(before), Some(after)) = (before, peak_memory()) {
            let grown = after.saturating_sub(before);
            assert!(grown < MAX_MEMORY, "{name}: {} MiB", grown >> 20);
        }
    }
}

#[test]
fn views_that_fit_their_file_are_read() {
    let file = TestFile::new("views.pt");
    let views = [
        View("tied.a", 6, &[2, 3], &[3, 1]),
        View("tied.b", 6, &[2, 3], &[3, 1]),
        View("transposed", 6, &[3, 2], &[1, 3]),
        View("expanded", 6, &[4], &[0]),
        View("empty", 6, &[0, 3], &[3, 1]),
    ];
    let storage: Vec<u8> = (0_u8..6)
        .flat_map(|it| f32::from(it).to_le_bytes())
        .collect();
    write_pytorch(&file.0, &views, &storage);
    let weights = Weights::read(&file.0).expect("a valid file");
    let read = |key: &str| -> Vec<f32> {
        let data = weights.get(key).expect(key);
        data.iter::<f32>().collect()
    };
    assert_eq!(read("tied.a"), [0., 1., 2., 3., 4., 5.]);
    assert_eq!(read("tied.b"), [0., 1., 2., 3., 4., 5.]);
    assert_eq!(read("transposed"), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(read("expanded"), [0.; 4]);
    assert_eq!(read("empty"), [0.; 0]);
}
