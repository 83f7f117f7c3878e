//! How fast bytes were read, against what the devices can give.

use serde::Serialize;

/// The read engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EngineReport {
    /// `io_uring` or `pread`.
    pub kind: String,
    /// Each device.
    pub devices: Vec<DeviceReport>,
    /// Arena memory registered with the kernel, on all devices.
    pub registered_bytes: u64,
    /// Time with a request queued or in flight on any device.
    pub busy_seconds: f64,
    /// Bytes the devices transferred, per second of that time.
    pub bytes_per_second: f64,
    /// What the devices give together, where that is known.
    pub ceiling_bytes_per_second: Option<f64>,
    /// How it is known: `given` or `probed`.
    pub ceiling_source: Option<&'static str>,
    /// Share of it that was reached while the devices were busy; `None` as long
    /// as nothing is known or read.
    pub ceiling_share: Option<f64>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Its number (`st_dev`).
    pub device: u64,
    /// Bytes transferred: payload, alignment and what retries read again.
    pub device_bytes: u64,
    /// Bytes of it that were wanted.
    pub payload_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Reads repeated because they failed in a way that can pass.
    pub retries: u64,
    /// Reads that brought less than asked.
    pub short_reads: u64,
    /// Time with a request queued or in flight.
    pub busy_seconds: f64,
    /// What a probe of it gave.
    pub ceiling_bytes_per_second: Option<f64>,
}

/// What devices can give.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadCeiling {
    /// All together, as the user says.
    Given(f64),
    /// By device number, as measured.
    Probed(Vec<(u64, f64)>),
}

impl ReadCeiling {
    /// The rate of one device.
    fn of(&self, device: u64) -> Option<f64> {
        match self {
            Self::Given(_) => None,
            Self::Probed(rates) => {
                let found = rates.iter().find(|(number, _)| *number == device);
                found.map(|(_, rate)| *rate)
            }
        }
    }

    fn total(&self) -> f64 {
        match self {
            Self::Given(rate) => *rate,
            Self::Probed(rates) => rates.iter().map(|(_, rate)| rate).sum(),
        }
    }

    fn source(&self) -> &'static str {
        match self {
            Self::Given(_) => "given",
            Self::Probed(_) => "probed",
        }
    }
}

impl EngineReport {
    /// An engine called `kind` that was busy for `busy_seconds`. The devices'
    /// own ceilings are filled in.
    #[must_use]
    pub fn new(
        kind: &str,
        mut devices: Vec<DeviceReport>,
        registered_bytes: u64,
        busy_seconds: f64,
        ceiling: Option<&ReadCeiling>,
    ) -> Self {
        for device in &mut devices {
            device.ceiling_bytes_per_second = ceiling.and_then(|ceiling| ceiling.of(device.device));
        }
        let bytes: u64 = devices.iter().map(|device| device.device_bytes).sum();
        let share = ceiling.and_then(|ceiling| match ceiling {
            ReadCeiling::Given(rate) => ratio(seconds_at(bytes, *rate), busy_seconds),
            ReadCeiling::Probed(_) => probed_share(&devices),
        });
        Self {
            kind: kind.to_owned(),
            registered_bytes,
            busy_seconds,
            bytes_per_second: ratio(float(bytes), busy_seconds).unwrap_or(0.0),
            ceiling_bytes_per_second: ceiling.map(ReadCeiling::total),
            ceiling_source: ceiling.map(ReadCeiling::source),
            ceiling_share: share,
            devices,
        }
    }
}

/// Time the probed devices would have needed at their own rates, against the
/// time they were busy: no device is measured against the speed of another.
fn probed_share(devices: &[DeviceReport]) -> Option<f64> {
    let probed = || {
        let rate = |device: &DeviceReport| device.ceiling_bytes_per_second;
        devices
            .iter()
            .filter_map(move |device| Some((device, rate(device)?)))
    };
    let needed: f64 = probed()
        .map(|(device, rate)| seconds_at(device.device_bytes, rate))
        .sum();
    ratio(
        needed,
        probed().map(|(device, _)| device.busy_seconds).sum(),
    )
}

fn seconds_at(bytes: u64, bytes_per_second: f64) -> f64 {
    float(bytes) / bytes_per_second
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(number: u64, device_bytes: u64, busy_seconds: f64) -> DeviceReport {
        DeviceReport {
            device: number,
            device_bytes,
            payload_bytes: device_bytes,
            requests: 1,
            retries: 0,
            short_reads: 0,
            busy_seconds,
            ceiling_bytes_per_second: None,
        }
    }

    #[test]
    fn a_given_rate_is_that_of_all_devices_together() {
        let devices = vec![device(1, 300, 2.0), device(2, 100, 1.0)];
        let given = ReadCeiling::Given(400.0);
        let report = EngineReport::new("pread", devices, 0, 2.0, Some(&given));
        assert_eq!(report.bytes_per_second, 200.0);
        assert_eq!(report.ceiling_bytes_per_second, Some(400.0));
        assert_eq!(report.ceiling_source, Some("given"));
        assert_eq!(report.ceiling_share, Some(0.5));
        assert_eq!(report.devices[0].ceiling_bytes_per_second, None);
    }

    #[test]
    fn a_slow_device_is_measured_against_itself() {
        // The slow one at all it gives, the fast one at half.
        let devices = vec![device(1, 100, 1.0), device(2, 500, 1.0), device(3, 7, 1.0)];
        let probed = ReadCeiling::Probed(vec![(1, 100.0), (2, 1000.0)]);
        let report = EngineReport::new("io_uring", devices, 0, 1.5, Some(&probed));
        assert_eq!(report.ceiling_bytes_per_second, Some(1100.0));
        assert_eq!(report.ceiling_share, Some(0.75));
        let ceilings: Vec<_> = report
            .devices
            .iter()
            .map(|device| device.ceiling_bytes_per_second)
            .collect();
        assert_eq!(ceilings, [Some(100.0), Some(1000.0), None]);
    }

    #[test]
    fn what_is_not_known_or_not_read_has_no_share() {
        let report = EngineReport::new("pread", vec![device(1, 5, 1.0)], 0, 1.0, None);
        assert_eq!(report.ceiling_bytes_per_second, None);
        assert_eq!(report.ceiling_share, None);
        let given = ReadCeiling::Given(1.0);
        let idle = EngineReport::new("pread", vec![device(1, 0, 0.0)], 0, 0.0, Some(&given));
        assert_eq!((idle.bytes_per_second, idle.ceiling_share), (0.0, None));
        let probed = ReadCeiling::Probed(vec![(1, 1.0)]);
        let idle = EngineReport::new("pread", vec![device(1, 0, 0.0)], 0, 0.0, Some(&probed));
        assert_eq!(idle.ceiling_share, None);
    }
}
