//! Which processors share a core.

use std::path::Path;

use serde::Serialize;

use super::files::{Report, first_number};
use super::{HostProblem, ProblemArea};

/// A logical processor and where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuPlace {
    /// Its number, as the scheduler knows it.
    pub cpu: u32,
    /// The socket.
    pub package: u32,
    /// The first logical processor of its physical core, allowed or not: two
    /// with the same one share their execution units.
    pub core: u32,
}

/// The processors a process may run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuTopology {
    /// By number.
    pub cpus: Vec<CpuPlace>,
    /// What is unknown, and why. Such a processor counts as a core of its own
    /// on the first socket.
    pub problems: Vec<HostProblem>,
}

impl CpuTopology {
    /// Looks up `allowed` on the machine whose file tree starts at `root`,
    /// usually `/`.
    #[must_use]
    pub fn read(root: &Path, allowed: &[u32]) -> Self {
        let mut report = Report::new(root);
        let mut cpus: Vec<_> = allowed
            .iter()
            .map(|&cpu| read_place(&mut report, cpu))
            .collect();
        cpus.sort_by_key(|place| place.cpu);
        Self {
            cpus,
            problems: report.into_problems(),
        }
    }

    /// Processor numbers in the order in which threads should take them: one of
    /// each physical core, socket by socket, then their siblings.
    #[must_use]
    pub fn by_core(&self) -> Vec<u32> {
        let rank = |place: &CpuPlace| {
            let before = |other: &&CpuPlace| other.core == place.core && other.cpu < place.cpu;
            self.cpus.iter().filter(before).count()
        };
        let mut order: Vec<_> = self
            .cpus
            .iter()
            .map(|place| (rank(place), place.package, place.cpu))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, cpu)| cpu).collect()
    }

    /// Physical cores among them.
    #[must_use]
    pub fn core_count(&self) -> usize {
        let mut cores: Vec<u32> = self.cpus.iter().map(|place| place.core).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len()
    }
}

fn read_place(report: &mut Report<'_>, cpu: u32) -> CpuPlace {
    let folder = report.path(&format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    // The first name is the current one, the second that of kernels before 5.3.
    let siblings = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| {
            let path = folder.join(name);
            let text = report.read_if_present(&path, ProblemArea::Other)?;
            Some((path, text))
        });
    let core = match &siblings {
        Some((path, text)) => {
            let first = first_member(text);
            if first.is_none() {
                let reason = format!("`{}` is no list of processors", text.trim());
                report.note(path, &reason, ProblemArea::Other);
            }
            first
        }
        None => {
            report.note(&folder, "the siblings are missing", ProblemArea::Other);
            None
        }
    };
    let package = report
        .read_if_present(&folder.join("physical_package_id"), ProblemArea::Other)
        // Some virtual machines say -1.
        .and_then(|text| u32::try_from(first_number(&text)?).ok());
    CpuPlace {
        cpu,
        package: package.unwrap_or(0),
        core: core.unwrap_or(cpu),
    }
}

/// The lowest number of a list such as `0,64` or `2-3`.
fn first_member(list: &str) -> Option<u32> {
    let numbers = list.trim().split([',', '-']);
    let numbers: Option<Vec<u32>> = numbers.map(|number| number.parse().ok()).collect();
    numbers?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_sibling_names_the_core() {
        for (list, want) in [
            ("0\n", Some(0)),
            ("5,69\n", Some(5)),
            ("2-3", Some(2)),
            ("", None),
            ("x", None),
            ("1,,2", None),
        ] {
            assert_eq!(first_member(list), want, "{list}");
        }
    }
}
