//! The argument that lets others watch a run.

use std::fmt;
use std::net::SocketAddr;

use clap::Args;
use k3_config::{Origin, Settings, Sourced};

/// How nowhere is spelt.
const OFF: &str = "off";

/// Where figures of a command that takes long are served.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct MetricsArgs {
    /// Serve figures to Prometheus while running
    ///
    /// An address of this machine and a port, as in 127.0.0.1:9464; the figures
    /// are at http://127.0.0.1:9464/metrics then. Port 0 takes any free one and
    /// says which; off serves nothing, whatever the settings say. The names are
    /// those of the report; docs/metrics.md gives each its formula.
    #[arg(long, value_name = "ADDR", value_parser = listen,
        allow_hyphen_values = true, help_heading = "Metrics")]
    pub metrics_listen: Option<Listen>,
}

/// What `--metrics-listen` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Nowhere, whatever the settings say.
    Off,
    /// There.
    At(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str(OFF),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl MetricsArgs {
    /// Where to serve: as the option says, else as the settings do.
    pub(crate) fn address(self, settings: &Settings) -> Option<Sourced<SocketAddr>> {
        match self.metrics_listen {
            None => settings.metrics_listen.clone(),
            Some(Listen::Off) => None,
            Some(Listen::At(address)) => {
                let name = "--metrics-listen".to_owned();
                Some(Sourced::new(address, Origin::Flag { name }))
            }
        }
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    if text == OFF {
        return Ok(Listen::Off);
    }
    let address = text.parse().map(Listen::At);
    address.map_err(|_| {
        "an address is an IP address of this machine and a port, as in 127.0.0.1:9464 or \
         [::1]:9464; off serves nothing"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(listen("off"), Ok(Listen::Off));
        for right in ["127.0.0.1:0", "[::1]:9464"] {
            assert_eq!(listen(right), Ok(Listen::At(right.parse().unwrap())));
        }
        for wrong in [
            "",
            "9464",
            ":9464",
            "localhost:9464",
            "127.0.0.1",
            "1.1.1.1:x",
        ] {
            assert!(
                listen(wrong).unwrap_err().contains("127.0.0.1:9464"),
                "{wrong}"
            );
        }
    }
}
