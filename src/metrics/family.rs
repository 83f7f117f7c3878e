//! Families of samples that are computed when somebody asks.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// What the samples of a family mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never falls.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One family: its samples are read from a state of type `S`.
pub(crate) struct Family<S: 'static> {
    /// `k3_…`, with the unit and, for a counter, `_total` at the end.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// What its samples mean.
    pub kind: Kind,
    /// Reads the samples; none where nothing is known.
    pub read: fn(&S, &mut Samples),
}

/// Samples of one family.
#[derive(Debug)]
pub(crate) struct Samples {
    kind: Kind,
    metrics: Vec<Metric>,
}

impl Samples {
    /// The family's only sample.
    pub(crate) fn one(&mut self, value: impl Number) {
        self.labelled(&[], value);
    }

    /// The family's only sample, where it is known.
    pub(crate) fn known(&mut self, value: Option<impl Number>) {
        if let Some(value) = value {
            self.one(value);
        }
    }

    /// One sample among several.
    pub(crate) fn labelled(&mut self, labels: &[(&str, &str)], value: impl Number) {
        let value = value.number();
        // Consumers choke on a NaN. What has no value has no sample.
        if !value.is_finite() {
            return;
        }
        let mut metric = Metric::from_label(labels.iter().map(|pair| label(*pair)).collect());
        match self.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.metrics.push(metric);
    }
}

fn label((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// What a sample may be made from.
pub(crate) trait Number {
    /// As Prometheus has it. Counts beyond 2^53 lose their last digits.
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for u64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "Prometheus has no other numbers"
    )]
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for usize {
    fn number(self) -> f64 {
        (self as u64).number()
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Collects `families` from states that `look` takes, one for each time
/// somebody asks: all samples of an answer are of the same moment.
pub(crate) struct Families<S: 'static, L> {
    families: &'static [Family<S>],
    descriptions: Vec<Desc>,
    look: L,
}

impl<S, L: Fn() -> S + Send + Sync> Families<S, L> {
    pub(crate) fn new(families: &'static [Family<S>], look: L) -> Self {
        let describe = |family: &Family<S>| {
            let (name, help) = (family.name.to_owned(), family.help.to_owned());
            Desc::new(name, help, Vec::new(), Default::default())
                .expect("names are those the format allows")
        };
        Self {
            families,
            descriptions: families.iter().map(describe).collect(),
            look,
        }
    }
}

impl<S, L: Fn() -> S + Send + Sync> Collector for Families<S, L> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = (self.look)();
        let families = self.families.iter().filter_map(|family| {
            let mut samples = Samples {
                kind: family.kind,
                metrics: Vec::new(),
            };
            (family.read)(&state, &mut samples);
            // A family without samples is left out, header and all.
            (!samples.metrics.is_empty()).then(|| encode(family, samples))
        });
        families.collect()
    }
}

fn encode<S>(family: &Family<S>, samples: Samples) -> MetricFamily {
    let mut encoded = MetricFamily::default();
    encoded.set_name(family.name.to_owned());
    encoded.set_help(family.help.to_owned());
    encoded.set_field_type(match family.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
    });
    encoded.set_metric(samples.metrics);
    encoded
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};

    use super::*;

    const FAMILIES: &[Family<f64>] = &[
        Family {
            name: "k3_test_bytes_total",
            help: "Bytes \\ of a test\nin two lines",
            kind: Kind::Counter,
            read: |state, samples| {
                samples.labelled(&[("device", "2")], *state);
                samples.labelled(&[("device", "1\"\n\\")], 7_u64);
            },
        },
        Family {
            name: "k3_test_share",
            help: "Nothing known",
            kind: Kind::Gauge,
            read: |_, samples| samples.known(None::<f64>),
        },
    ];

    fn text(state: f64) -> String {
        let registry = Registry::new();
        let families = Families::new(FAMILIES, move || state);
        registry.register(Box::new(families)).unwrap();
        TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap()
    }

    #[test]
    fn one_header_for_all_samples_and_none_for_no_sample() {
        let expected = "# HELP k3_test_bytes_total Bytes \\\\ of a test\\nin two lines\n\
                        # TYPE k3_test_bytes_total counter\n\
                        k3_test_bytes_total{device=\"1\\\"\\n\\\\\"} 7\n\
                        k3_test_bytes_total{device=\"2\"} 0.5\n";
        assert_eq!(text(0.5), expected);
    }

    #[test]
    fn what_is_not_a_number_is_no_sample() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let text = text(value);
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }
}
