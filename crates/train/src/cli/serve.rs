//! `zoo serve`: a local web page with runs, curves, models and bench reports.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use zoo_spec::{Backend, BackendId};

use super::arguments::with_names;
use super::attend::open_page;
use super::{Command, print, print_error_line};
use crate::files::PrivateFile;
use crate::serve::{ServeOptions, Server};
use crate::{Result, TrainError};

/// Serve a local web page with runs, live curves, models to try and bench reports
///
/// The page is served to this machine only (127.0.0.1), at an address with a secret token, which is
/// new at every start. Ctrl-C stops the server. To use it from another machine, forward the port:
/// ssh -L 8460:127.0.0.1:8460 HOST.
#[derive(Debug, Args)]
pub struct Serve {
    /// Serve the runs in this folder and in its subfolders
    #[arg(default_value = "runs")]
    folder: PathBuf,

    /// Listen on this port; 0 selects a free one
    #[arg(long, default_value_t = 8460)]
    port: u16,

    /// Open the page in the default browser
    #[arg(long)]
    open: bool,

    /// Compute on this backend [default: the backend of the training run]
    #[arg(long, value_name = "BACKEND", hide_possible_values = true)]
    #[arg(value_parser = with_names::<BackendId, _>(Backend::ALL.map(Backend::name)))]
    backend: Option<BackendId>,

    /// Serve the bench reports in this folder
    #[arg(long, value_name = "FOLDER", default_value = "bench-results")]
    bench: PathBuf,
}

impl Command for Serve {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let server = Server::bind(ServeOptions {
            runs: self.folder,
            reports: self.bench,
            port: self.port,
            backend: self.backend,
        })?;
        let url = server.url();
        print(out, &format!("{url}\n"))?;
        print_error_line("Ctrl-C stops the server");
        // It is removed when the server stops.
        let mut redirect = None;
        if self.open {
            let note = |error: TrainError| print_error_line(format_args!("note: {error}"));
            match PrivateFile::write("zoo-serve-", ".html", redirect_page(&url).as_bytes()) {
                Ok(file) => {
                    let path = file.path().to_owned();
                    redirect = Some(file);
                    // The browser needs the server, and some systems wait for the browser.
                    std::thread::spawn(move || open_page(&path).unwrap_or_else(note));
                }
                Err(error) => note(error),
            }
        }
        let served = server.run(stop_signal);
        drop(redirect);
        served
    }
}

/// A page that redirects to the address. Other users can read the arguments of a process, so the
/// browser gets the token from a file.
fn redirect_page(url: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" \
         content=\"no-referrer\">\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
         <title>Attention Zoo</title>\n<a href=\"{url}\">Attention Zoo</a>\n"
    )
}

/// Waits for Ctrl-C or `SIGTERM`.
#[cfg(unix)]
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let [Ok(mut interrupt), Ok(mut terminate)] = kinds.map(signal) else {
        // Signals then have their default effect.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn stop_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
