//! The argument that lets others watch a run.

use std::net::SocketAddr;

use clap::Args;

/// Where figures of a command that takes long are served.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct MetricsArgs {
    /// Serve figures to Prometheus while running
    ///
    /// An address of this machine and a port, as in 127.0.0.1:9464; the figures
    /// are at http://127.0.0.1:9464/metrics then. Port 0 takes any free one and
    /// says which. The names are those of the report; docs/metrics.md gives each
    /// its formula.
    #[arg(long, value_name = "ADDR", value_parser = address,
        allow_hyphen_values = true, help_heading = "Metrics")]
    pub metrics_listen: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address is an IP address of this machine and a port, as in 127.0.0.1:9464 or \
         [::1]:9464"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("127.0.0.1:0").unwrap().port(), 0);
        assert!(address("[::1]:9464").unwrap().is_ipv6());
        for wrong in [
            "",
            "9464",
            ":9464",
            "localhost:9464",
            "127.0.0.1",
            "1.1.1.1:x",
        ] {
            assert!(
                address(wrong).unwrap_err().contains("127.0.0.1:9464"),
                "{wrong}"
            );
        }
    }
}
