//! Figures of a run for Prometheus: the registry, and the server that gives
//! them to whoever asks.
//!
//! | module | holds |
//! |---|---|
//! | [`family`] | families of samples that are computed when asked for |
//! | [`server`] | HTTP on a thread of its own, only where it was asked for |
//! | [`connection`] | what one client may take of it |
//!
//! A command opens [`Metrics`] before it reads anything, over what it will
//! count. Dropping it ends the server. Counting costs the run nothing that it
//! would not spend on its report: figures are computed by whoever asks, from
//! what the run counts anyway.

mod connection;
pub(crate) mod family;
mod server;

use std::io::Write as _;
use std::net::SocketAddr;

use k3_config::Sourced;
use prometheus::Registry;
use prometheus::core::Collector;

use crate::error::CliError;
use crate::render::style::Style;
use server::Server;

/// What serves a run's figures for as long as it lives, if that was asked for.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub(crate) struct Metrics {
    _server: Option<Server>,
}

impl Metrics {
    /// Serves what `collector` collects on `address`, if there is one, and says
    /// where, unless `quiet` and known already.
    ///
    /// # Errors
    ///
    /// An address that cannot be listened on.
    ///
    /// # Panics
    ///
    /// If a family is described twice.
    pub(crate) fn open(
        address: Option<Sourced<SocketAddr>>,
        quiet: bool,
        collector: impl Collector + 'static,
    ) -> Result<Self, CliError> {
        let Some(Sourced { value, origin }) = address else {
            return Ok(Self { _server: None });
        };
        // Complete before the first question can come.
        let registry = Registry::new();
        let registered = registry.register(Box::new(collector));
        registered.expect("each family is described once");
        let server = Server::start(value, registry);
        let server = server.map_err(|source| CliError::MetricsAddress {
            address: value,
            origin,
            source,
        })?;
        if !quiet || value.port() == 0 {
            announce(server.address());
        }
        Ok(Self {
            _server: Some(server),
        })
    }
}

fn announce(address: SocketAddr) {
    let label = Style::detect().hint("metrics:");
    // Where nobody can read it, somebody may know the port all the same.
    let _ = writeln!(std::io::stderr(), "{label} http://{address}/metrics");
}
