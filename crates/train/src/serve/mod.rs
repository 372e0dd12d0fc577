//! `zoo serve`: a local web page with runs, live curves, models to try and bench reports.
//!
//! ```text
//! browser -> server: connections and limits -> security: Host, Origin, token
//!                                           -> api: routes -> inference: one thread with the models
//! ```
//!
//! The page (`page/`) has no external resources. No path is built from a request: runs and reports
//! are looked up by name in the list that the page shows.

mod api;
mod inference;
mod security;
mod server;

use std::future::Future;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zoo_backend::BackendId;
use zoo_spec::closest_path;

use self::api::Api;
use self::inference::Models;
use self::security::Guard;
use crate::out::print_error_line;
use crate::{Result, TrainError};

const NOTICE_AFTER: Duration = Duration::from_millis(500);

/// What is served.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    /// The folder of runs.
    pub(crate) runs: PathBuf,
    /// The folder of bench reports, which need not exist.
    pub(crate) reports: PathBuf,
    /// A port of 127.0.0.1; 0 selects a free one.
    pub(crate) port: u16,
    /// Backend of the models; by default that of each run.
    pub(crate) backend: Option<BackendId>,
}

/// A server that is listening.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    guard: Guard,
    options: ServeOptions,
}

impl Server {
    /// Listens on the port.
    pub(crate) fn bind(options: ServeOptions) -> Result<Self> {
        if !options.runs.is_dir() {
            let help = match closest_path(&options.runs, Path::is_dir) {
                Some(closest) => format!("did you mean {}?", closest.display()),
                None => {
                    "`zoo serve FOLDER` serves another folder; `zoo train CONFIG` creates a run \
                         in runs"
                        .to_owned()
                }
            };
            return Err(TrainError::Refused(format!(
                "no folder {}\n  help: {help}",
                options.runs.display()
            )));
        }
        let port = options.port;
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = bound.map_err(|error| cannot_listen(port, &error))?;
        let address = listener.local_addr();
        let address = address.map_err(|error| cannot_listen(port, &error))?;
        Ok(Self {
            listener,
            guard: Guard::new(address.port())?,
            options,
        })
    }

    /// The address of the page, with its token.
    pub(crate) fn url(&self) -> String {
        self.guard.url()
    }

    /// Serves until `stop` is ready, then waits for the current computation.
    pub(crate) fn run<F: Future<Output = ()>>(self, stop: impl Fn() -> F) -> Result<()> {
        let cannot_run = |error| TrainError::Refused(format!("the server cannot start: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(cannot_run)?;
        let (models, finished) = Models::start(self.options.backend).map_err(cannot_run)?;
        let api = Arc::new(Api::new(self.options.runs, self.options.reports, models));
        let served = runtime.block_on(async {
            tokio::select! {
                served = server::serve(self.listener, self.guard, api.clone()) => served,
                () = stop() => Ok(()),
            }
        });
        api.models.stop();
        runtime.block_on(async {
            let notice = async {
                tokio::time::sleep(NOTICE_AFTER).await;
                print_error_line("waiting for the current computation (Ctrl-C again: exit now)");
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = finished => {}
                () = stop() => {}
                () = notice => {}
            }
        });
        runtime.shutdown_background();
        served.map_err(cannot_run)
    }
}

fn cannot_listen(port: u16, error: &std::io::Error) -> TrainError {
    TrainError::Refused(match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {port} of 127.0.0.1 is in use, perhaps by another `zoo serve`\n  help: --port 0 \
             selects a free port, --port N another one"
        ),
        ErrorKind::PermissionDenied => format!(
            "port {port} of 127.0.0.1 requires administrator rights\n  help: choose a port above \
             1023 with --port N"
        ),
        _ => format!(
            "cannot listen on port {port} of 127.0.0.1: {error}\n  help: --port N selects another \
             port"
        ),
    })
}
