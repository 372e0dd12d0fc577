//! What people get from a word: a device that computes, or an error that helps.
//! On the device `ZOO_BACKEND` names (default: flex).

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_backend::{Backend, Dtype, Opened, open_for_tests};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match open_for_tests() {
        Ok(opened) => libtest_mimic::run(&arguments, trials(&opened)).exit_code(),
        Err(failure) => failure,
    }
}

fn trials(opened: &Opened) -> Vec<Trial> {
    let word = opened.word.to_string();
    let mut trials = vec![
        trial("it-computes", opened, |opened| Ok(opened.self_test()?)),
        trial("opening-again-gives-the-same", opened, |opened| {
            let again = zoo_backend::open(opened.word, Dtype::F32)?;
            assert_eq!(again.device, opened.device);
            Ok(())
        }),
        trial("a-process-settles-one-dtype", opened, |opened| {
            let error = zoo_backend::open(opened.word, Dtype::F16).expect_err("f32 is settled");
            let settled = "already open in f32 in this process and cannot change to f16";
            assert!(error.to_string().contains(settled), "{error}");
            Ok(())
        }),
    ];
    let mut refused = |name: &str, arguments: &[&str], parts: &[&str]| {
        trials.push(refusal(name, opened, probe(arguments), parts));
    };
    let nearest = "unknown backend \"wpgu\": did you mean wgpu?";
    refused("an-unknown-word-gets-the-nearest", &["wpgu"], &[nearest]);
    let nearest = "unknown dtype \"f23\": did you mean f32?";
    refused(
        "an-unknown-dtype-gets-the-nearest",
        &[&word, "f23"],
        &[nearest],
    );
    for backend in Backend::ALL {
        let feature = backend.feature();
        if !zoo_backend::compiled().contains(&feature) {
            let what = format!("backend \"{backend}\" is not compiled into this program");
            let run = "cargo run --release --package zoo-backend --bin zoo-backend";
            let command = format!("{run} --features {feature} -- {backend}");
            let name = format!("{backend}-is-not-compiled-in");
            refused(&name, &[backend.word()], &[&what, &command]);
        }
    }
    for dtype in Dtype::ALL {
        let arguments = [&*word, dtype.word()];
        if opened.dtypes.contains(&dtype) {
            let mut probe = probe(&arguments);
            let name = format!("{dtype}-is-computed-in");
            trials.push(trial(&name, opened, move |_| {
                let output = probe.output()?;
                assert!(output.status.success(), "{output:?}");
                Ok(())
            }));
        } else {
            let says = format!("cannot compute in {dtype}\n  it computes in: f32");
            let name = format!("{dtype}-is-refused");
            trials.push(refusal(&name, opened, probe(&arguments), &[&says]));
        }
    }
    trials.extend(match opened.word.backend {
        Backend::Wgpu | Backend::Vulkan => adapter_trials(opened),
        Backend::TchCpu | Backend::TchCuda => libtorch_trials(opened),
        _ => Vec::new(),
    });
    trials
}

fn adapter_trials(opened: &Opened) -> Vec<Trial> {
    let word = opened.word.backend.word();
    let gpu = |index: usize| format!("{word}:{index}");
    let asks = format!("\"{}\" asks for a GPU, and this machine has", gpu(99));
    let asks = [&*asks, "found: ", "install the driver"];
    let mut hidden = probe(&[word]);
    // Drivers are found through these; a path to nowhere hides them all.
    for variable in [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "__EGL_VENDOR_LIBRARY_FILENAMES",
        "LIBGL_DRIVERS_PATH",
    ] {
        hidden.env(variable, "/nowhere.json");
    }
    let none = format!("\"{word}\": no Vulkan, Metal, DirectX or OpenGL adapter was found");
    let none = [&*none, "apt-get install mesa-vulkan-drivers"];
    let mut trials = vec![
        refusal("a-gpu-beyond-the-last", opened, probe(&[&gpu(99)]), &asks),
        refusal("no-adapter-at-all", opened, hidden, &none),
    ];
    if opened.software {
        let found = format!("found: {}", opened.name);
        let parts = ["this machine has 0 of them", &*found];
        let name = "a-software-adapter-is-no-gpu";
        trials.push(refusal(name, opened, probe(&[&gpu(0)]), &parts));
    }
    trials
}

fn libtorch_trials(opened: &Opened) -> Vec<Trial> {
    // `tch` goes where CUDA is.
    let said = probe(&["tch"]).output().map(|output| output.stdout);
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    if said.contains("tch-cuda") {
        let name = "a-cuda-device-beyond-the-last";
        let parts = ["CUDA device(s), counted from 0"];
        return vec![refusal(name, opened, probe(&["tch-cuda:99"]), &parts)];
    }
    let parts = [
        "\"tch-cuda\": LibTorch ",
        " has no CUDA device: it was built",
        "\"tch-cpu\"",
    ];
    vec![
        refusal("no-cuda", opened, probe(&["tch-cuda"]), &parts),
        trial("tch-takes-the-cpu-and-says-so", opened, move |_| {
            assert!(said.contains("\"opened\":\"tch-cpu\""), "{said}");
            Ok(())
        }),
    ]
}

fn trial(
    name: &str,
    opened: &Opened,
    test: impl FnOnce(&Opened) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let opened = opened.clone();
    let name = format!("{}/{name}", opened.word);
    Trial::test(name, move || test(&opened))
}

fn probe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoo-backend"));
    command.args(arguments);
    command
}

/// A trial that a program fails, says each of `parts`, and does not panic.
fn refusal(name: &str, opened: &Opened, mut probe: Command, parts: &[&str]) -> Trial {
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    trial(name, opened, move |_| {
        let output = probe.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            !said.contains("panicked") && !said.contains("backtrace"),
            "{said}"
        );
        for part in parts {
            assert!(said.contains(&part), "it does not say {part:?}: {said}");
        }
        Ok(())
    })
}
