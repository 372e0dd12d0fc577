//! What people get from a word: a device that computes, or an error that helps.
//! On the device `ZOO_BACKEND` names (default: flex).

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_backend::{Backend, BackendError, Dtype, Opened, open_for_tests};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match open_for_tests() {
        Ok(opened) => libtest_mimic::run(&arguments, trials(&opened)).exit_code(),
        Err(failure) => failure,
    }
}

fn trials(opened: &Opened) -> Vec<Trial> {
    let mut trials = vec![
        trial("it-computes", opened, |opened| Ok(opened.self_test()?)),
        trial("opening-again-gives-the-same", opened, |opened| {
            let again = zoo_backend::open(opened.word, Dtype::F32)?;
            equal(&again.device, &opened.device)
        }),
        trial("a-process-settles-one-dtype", opened, |opened| {
            let error = zoo_backend::open(opened.word, Dtype::F16).expect_err("f32 is settled");
            equal(
                &error,
                &BackendError::DtypeSettled {
                    word: opened.word,
                    first: Dtype::F32,
                    dtype: Dtype::F16,
                },
            )
        }),
        trial("an-unknown-word-gets-the-nearest", opened, |_| {
            refused(&["wpgu"], &["unknown backend \"wpgu\": did you mean wgpu?"])
        }),
        trial("an-unknown-dtype-gets-the-nearest", opened, |opened| {
            let word = opened.word.to_string();
            refused(
                &[&word, "f23"],
                &["unknown dtype \"f23\": did you mean f32?"],
            )
        }),
    ];
    for backend in Backend::ALL {
        if !zoo_backend::compiled().contains(&backend.feature()) {
            trials.push(Trial::test(
                format!("{backend}/is-not-compiled-in"),
                move || {
                    refused(
                        &[backend.word()],
                        &[
                            &format!("backend \"{backend}\" is not compiled into this program"),
                            &format!(
                                "cargo run --release --package zoo-backend --bin zoo-backend --features {} -- {backend}",
                                backend.feature()
                            ),
                        ],
                    )
                },
            ));
        }
    }
    for dtype in Dtype::ALL {
        let name = match opened.dtypes.contains(&dtype) {
            true => format!("{dtype}-is-computed-in"),
            false => format!("{dtype}-is-refused"),
        };
        trials.push(trial(&name, opened, move |opened| {
            let (word, supported) = (opened.word.to_string(), opened.dtypes.contains(&dtype));
            match supported {
                true => accepted(&[&word, dtype.word()]),
                false => refused(
                    &[&word, dtype.word()],
                    &[&format!("cannot compute in {dtype}\n  it computes in: f32")],
                ),
            }
        }));
    }
    trials.extend(match opened.word.backend {
        Backend::Wgpu | Backend::Vulkan => adapter_trials(opened),
        Backend::TchCpu | Backend::TchCuda => libtorch_trials(opened),
        _ => Vec::new(),
    });
    trials
}

fn adapter_trials(opened: &Opened) -> Vec<Trial> {
    let mut trials = vec![
        trial("a-gpu-beyond-the-last", opened, |opened| {
            let word = format!("{}:99", opened.word.backend);
            refused(
                &[&word],
                &[
                    &format!("\"{word}\" asks for a GPU, and this machine has"),
                    "found: ",
                    "install the driver",
                ],
            )
        }),
        trial("no-adapter-at-all", opened, |opened| {
            let word = opened.word.backend.word();
            let output = probe(&[word])
                // Drivers are found through these; a path to nowhere hides them all.
                .env("VK_DRIVER_FILES", "/nowhere.json")
                .env("VK_ICD_FILENAMES", "/nowhere.json")
                .env("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json")
                .env("LIBGL_DRIVERS_PATH", "/nowhere")
                .output()?;
            complains(
                &output,
                &[
                    &format!("\"{word}\": no Vulkan, Metal, DirectX or OpenGL adapter was found"),
                    "apt-get install mesa-vulkan-drivers",
                ],
            )
        }),
    ];
    if opened.software {
        trials.push(trial("a-software-adapter-is-no-gpu", opened, |opened| {
            let word = format!("{}:0", opened.word.backend);
            refused(
                &[&word],
                &[
                    "this machine has 0 of them",
                    &format!("found: {}", opened.name),
                ],
            )
        }));
    }
    trials
}

fn libtorch_trials(opened: &Opened) -> Vec<Trial> {
    // `tch` goes where CUDA is.
    let said = probe(&["tch"]).output().map(|output| output.stdout);
    let cuda = said.is_ok_and(|said| String::from_utf8_lossy(&said).contains("tch-cuda"));
    if cuda {
        vec![trial("a-cuda-device-beyond-the-last", opened, |_| {
            refused(&["tch-cuda:99"], &["CUDA device(s), counted from 0"])
        })]
    } else {
        vec![
            trial("no-cuda", opened, |_| {
                refused(
                    &["tch-cuda"],
                    &[
                        "\"tch-cuda\": LibTorch ",
                        " has no CUDA device: it was built",
                        "\"tch-cpu\"",
                    ],
                )
            }),
            trial("tch-takes-the-cpu-and-says-so", opened, |_| {
                let output = probe(&["tch"]).output()?;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                contains(&said, &["\"opened\":\"tch-cpu\""])
            }),
        ]
    }
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

fn accepted(arguments: &[&str]) -> Result<(), Failed> {
    let output = probe(arguments).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}

fn refused(arguments: &[&str], parts: &[&str]) -> Result<(), Failed> {
    complains(&probe(arguments).output()?, parts)
}

/// A failure that says each of `parts`, and is no panic.
fn complains(output: &std::process::Output, parts: &[&str]) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() != Some(1) {
        return Err(format!("it ended with {}: {said}", output.status).into());
    }
    if said.contains("panicked") || said.contains("backtrace") {
        return Err(format!("it panicked: {said}").into());
    }
    contains(&said, parts)
}

fn contains(said: &str, parts: &[&str]) -> Result<(), Failed> {
    match parts.iter().find(|part| !said.contains(**part)) {
        Some(part) => Err(format!("it does not say {part:?}: {said}").into()),
        None => Ok(()),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(got: &T, want: &T) -> Result<(), Failed> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{got:?} instead of {want:?}").into())
    }
}
