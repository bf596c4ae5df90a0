//! `pointsman run`: a runtime, the signals and the app between them.
//!
//! SIGTERM and SIGINT end it in order; a second one waits for nobody but the disk, and a third one for
//! nothing at all. SIGHUP reloads. Handlers are installed before the configuration is read, and from the
//! first line of `main` until then hangups are held back, so that an early one is kept and not deadly.

use crate::app::{App, Given, Loader, Started, Wish, banner};
use crate::clock::Clock;
use crate::config::Inputs;
use crate::log;
use crate::net::HandedIn;
use crate::notify::Notify;
use crate::plan::{Plan, Planned};
use crate::whole_file::outlive_file_limit;
use nix::sys::signal::{SigSet, Signal as Number};
use std::process::ExitCode;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// Keeps hangups waiting until [`run`] can take them: without a handler they kill.
pub fn hold_hangups() {
    // Were it refused, an early hangup would end the process, as it does any other.
    let _ = hangup().thread_block();
}

/// Lets them through again: to their handler, or for a command that has none to end it.
pub fn release_hangups() {
    let _ = hangup().thread_unblock();
}

fn hangup() -> SigSet {
    SigSet::from(Number::SIGHUP)
}

/// Runs the gateway until it is told to end.
pub fn run(
    inputs: &Inputs,
    format: log::Format,
    bad: impl Fn(&crate::config::Report) -> ExitCode,
) -> ExitCode {
    // Before there are threads, which the environment must not change under.
    let given = Given { sockets: HandedIn::from_environment(), notify: Notify::from_environment() };
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(problem) => return failed(&problem.to_string()),
    };
    let code = runtime.block_on(async {
        let signals = match Signals::install() {
            Ok(signals) => signals,
            Err(problem) => return failed(&format!("signals: {problem}")),
        };
        release_hangups();
        outlive_file_limit();
        match Plan::load(inputs) {
            Ok(planned) => serve(planned, inputs.clone(), format, signals, given).await,
            Err(report) => bad(&report),
        }
    });
    // A lookup or a write that hangs on a blocking thread must not keep the process.
    runtime.shutdown_background();
    code
}

async fn serve(
    planned: Planned,
    inputs: Inputs,
    format: log::Format,
    signals: Signals,
    given: Given,
) -> ExitCode {
    let Planned { plan, warnings } = planned;
    for warning in warnings.lines() {
        warn!("{warning}");
    }
    let files = inputs.files.clone();
    let app = match App::start(plan.clone(), loader(inputs), Clock::System, given).await {
        Ok(app) => app,
        Err(problem) => return failed(&problem),
    };
    if format == log::Format::Text {
        let program = std::env::args().next().unwrap_or_else(|| "pointsman".to_owned());
        let started = Started { program: &program, files: &files };
        log::tell(&banner(&plan, &app.addresses(), &app.admin_address(), started));
    }
    let (shutdown, told) = oneshot::channel::<()>();
    let hurry = CancellationToken::new();
    tokio::spawn(signals.watch(app.wish(), shutdown, hurry.clone()));
    let farewell = app.run(async { drop(told.await) }, hurry).await;
    if farewell.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads the same files again; the report becomes one text.
fn loader(inputs: Inputs) -> Loader {
    let inputs = Inputs { again: true, ..inputs };
    Box::new(move || match Plan::load(&inputs) {
        Ok(planned) => {
            for warning in planned.warnings.lines() {
                warn!("{warning}");
            }
            Ok(planned.plan)
        }
        Err(report) => Err(report.lines().join("\n")),
    })
}

fn failed(problem: &str) -> ExitCode {
    error!("{problem}");
    ExitCode::FAILURE
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn watch(
        mut self,
        wish: mpsc::Sender<Wish>,
        shutdown: oneshot::Sender<()>,
        hurry: CancellationToken,
    ) {
        let mut shutdown = Some(shutdown);
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    // The outcome is logged where it happens; nobody waits for it here. A wish
                    // that has not been heard yet will read the newest file, too.
                    let _ = wish.try_send(oneshot::channel().0);
                    continue;
                }
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            match shutdown.take() {
                Some(shutdown) => drop(shutdown.send(())),
                None if !hurry.is_cancelled() => {
                    warn!("told twice: ending at once; what has no place on disk is lost");
                    hurry.cancel();
                }
                None => {
                    warn!("told three times: ending where it stands");
                    std::process::exit(1);
                }
            }
        }
    }
}
