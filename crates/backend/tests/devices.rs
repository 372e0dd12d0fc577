//! Opening of devices: a device that passes its self-test, or an error with a remedy. Tests run on
//! the device named by `ZOO_BACKEND` (default: flex).

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_backend::{Backend, Dtype, OpenDevice, check_all_reduce, open_for_tests};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match open_for_tests() {
        Ok(opened) => libtest_mimic::run(&arguments, trials(&opened)).exit_code(),
        Err(failure) => failure,
    }
}

fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let id = opened.id.to_string();
    let mut trials = vec![
        trial("self-test-passes", opened, |opened| Ok(opened.self_test()?)),
        trial("reopening-returns-the-same-device", opened, |opened| {
            let again = zoo_backend::open(opened.id, Dtype::F32)?;
            assert_eq!(again.device, opened.device);
            Ok(())
        }),
        trial("dtype-cannot-change", opened, |opened| {
            let error = zoo_backend::open(opened.id, Dtype::F16).expect_err("f32 is configured");
            let expected = "already open with dtype f32, which cannot change to f16";
            assert!(error.to_string().contains(expected), "{error}");
            Ok(())
        }),
        trial("all-reduce-of-one-device", opened, |opened| {
            let checked = check_all_reduce(std::slice::from_ref(opened));
            if opened.id.backend.has_all_reduce() {
                return Ok(checked?);
            }
            let error = checked.expect_err("Burn does not implement it").to_string();
            let expected = format!(
                "Burn has no all-reduce for \"{}\"\n  help: use cuda",
                opened.id
            );
            assert_eq!(error, expected);
            Ok(())
        }),
    ];
    let mut rejected = |name: &str, arguments: &[&str], parts: &[&str]| {
        trials.push(failure(name, opened, probe(arguments), parts));
    };
    let expected = "unknown backend \"wpgu\": did you mean wgpu?";
    rejected("unknown-backend-is-corrected", &["wpgu"], &[expected]);
    let expected = "unknown dtype \"f23\": did you mean f32?";
    rejected("unknown-dtype-is-corrected", &[&id, "f23"], &[expected]);
    for backend in Backend::ALL {
        let feature = backend.feature();
        if !zoo_backend::compiled_features().contains(&feature) {
            let message = format!("backend \"{backend}\" is not compiled into this program");
            let run = "cargo run --release --package zoo-backend --bin zoo-backend";
            let command = format!("{run} --features {feature} -- {backend}");
            let name = format!("{backend}-is-not-compiled-in");
            rejected(&name, &[backend.name()], &[&message, &command]);
        }
    }
    for dtype in Dtype::ALL {
        let arguments = [&*id, dtype.name()];
        if opened.dtypes.contains(&dtype) {
            let mut probe = probe(&arguments);
            let name = format!("{dtype}-is-supported");
            trials.push(trial(&name, opened, move |_| {
                let output = probe.output()?;
                assert!(output.status.success(), "{output:?}");
                Ok(())
            }));
        } else {
            let message = format!("{dtype} is not supported by ");
            let name = format!("{dtype}-is-rejected");
            let parts = [&*message, "help: use one of: f32"];
            trials.push(failure(&name, opened, probe(&arguments), &parts));
        }
    }
    trials.extend(match opened.id.backend {
        Backend::Wgpu | Backend::Vulkan => adapter_trials(opened),
        Backend::TchCpu | Backend::TchCuda => libtorch_trials(opened),
        _ => Vec::new(),
    });
    trials
}

fn adapter_trials(opened: &OpenDevice) -> Vec<Trial> {
    let backend = opened.id.backend.name();
    let gpu = |index: usize| format!("{backend}:{index}");
    let missing = format!("\"{}\" is not available: this machine has", gpu(99));
    let missing = [&*missing, "found: ", "install the driver"];
    let mut without_drivers = probe(&[backend]);
    // Invalid paths hide all drivers.
    for variable in [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "__EGL_VENDOR_LIBRARY_FILENAMES",
        "LIBGL_DRIVERS_PATH",
    ] {
        without_drivers.env(variable, "/nowhere.json");
    }
    let none = format!("\"{backend}\": no Vulkan, Metal, DirectX or OpenGL adapter was found");
    let none = [&*none, "apt-get install mesa-vulkan-drivers"];
    let out_of_range = probe(&[&gpu(99)]);
    let mut trials = vec![
        failure("gpu-index-out-of-range", opened, out_of_range, &missing),
        failure("no-adapter", opened, without_drivers, &none),
    ];
    if opened.software {
        let found = format!("found: {}", opened.name);
        let parts = ["this machine has 0 GPU(s)", &*found];
        let name = "software-adapter-is-not-a-gpu";
        trials.push(failure(name, opened, probe(&[&gpu(0)]), &parts));
    }
    trials
}

fn libtorch_trials(opened: &OpenDevice) -> Vec<Trial> {
    // `tch` resolves to CUDA if it is available.
    let stdout = probe(&["tch"]).output().map(|output| output.stdout);
    let stdout = String::from_utf8_lossy(&stdout.unwrap_or_default()).into_owned();
    if stdout.contains("tch-cuda") {
        let name = "cuda-index-out-of-range";
        let parts = ["CUDA device(s), numbered from 0"];
        return vec![failure(name, opened, probe(&["tch-cuda:99"]), &parts)];
    }
    let parts = [
        "\"tch-cuda\": LibTorch ",
        " has no CUDA device: it was built",
        "\"tch-cpu\"",
    ];
    vec![
        failure("no-cuda", opened, probe(&["tch-cuda"]), &parts),
        trial("tch-resolves-to-the-cpu", opened, move |_| {
            assert!(stdout.contains("\"opened\":\"tch-cpu\""), "{stdout}");
            Ok(())
        }),
    ]
}

fn trial(
    name: &str,
    opened: &OpenDevice,
    test: impl FnOnce(&OpenDevice) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let opened = opened.clone();
    let name = format!("{}/{name}", opened.id);
    Trial::test(name, move || test(&opened))
}

fn probe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoo-backend"));
    command.args(arguments);
    command
}

/// A trial that the program fails without a panic and with a message that contains all `parts`.
fn failure(name: &str, opened: &OpenDevice, mut probe: Command, parts: &[&str]) -> Trial {
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    trial(name, opened, move |_| {
        let output = probe.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        for panic in ["panicked", "backtrace"] {
            assert!(!stderr.contains(panic), "{stderr}");
        }
        for part in parts {
            assert!(stderr.contains(&part), "{part:?} is missing: {stderr}");
        }
        Ok(())
    })
}
