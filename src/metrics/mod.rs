//! Figures of a run for Prometheus: the registry, and the server that gives
//! them to whoever asks.
//!
//! | module | holds |
//! |---|---|
//! | [`family`] | families of samples that are computed when asked for |
//! | [`server`] | HTTP on a thread of its own, only where it was asked for |
//! | [`connection`] | what one client may take of it |
//!
//! A command opens [`Metrics`] before it reads anything and registers what it
//! counts. Dropping it ends the server. Counting costs the run nothing that it
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

/// Everything a run lets others watch.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// `None` unless it was asked for.
    server: Option<Server>,
}

impl Metrics {
    /// Serves on `address`, if there is one, and says where, unless `quiet`
    /// and known already.
    ///
    /// # Errors
    ///
    /// An address that cannot be listened on.
    pub(crate) fn open(
        address: Option<&Sourced<SocketAddr>>,
        quiet: bool,
    ) -> Result<Self, CliError> {
        let registry = Registry::new();
        let server = match address {
            None => None,
            Some(Sourced { value, origin }) => {
                let server = Server::start(*value, registry.clone());
                let server = server.map_err(|source| CliError::MetricsAddress {
                    address: *value,
                    origin: origin.clone(),
                    source,
                })?;
                if !quiet || value.port() == 0 {
                    announce(server.address());
                }
                Some(server)
            }
        };
        Ok(Self { registry, server })
    }

    /// Serves what `collector` collects, from now on.
    ///
    /// # Panics
    ///
    /// If a family of that name is registered already.
    pub(crate) fn register(&self, collector: impl Collector + 'static) {
        if self.server.is_some() {
            let registered = self.registry.register(Box::new(collector));
            registered.expect("each family is registered once");
        }
    }
}

fn announce(address: SocketAddr) {
    let label = Style::detect().hint("metrics:");
    // Where nobody can read it, somebody may know the port all the same.
    let _ = writeln!(std::io::stderr(), "{label} http://{address}/metrics");
}
