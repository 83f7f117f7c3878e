//! Where hwloc says that threads and memory belong (feature `numa`).
//!
//! A machine with several memory nodes reads its own node's memory faster, and
//! all nodes together faster than one. Every thread multiplies rows of every
//! block, so big memory is interleaved over the nodes, page by page, and threads
//! are spread over them: each node's controller carries its share. On a machine
//! with one node nothing is done.

use std::sync::OnceLock;

use hwlocality::Topology;
use hwlocality::memory::binding::{MemoryBindingFlags, MemoryBindingPolicy};
use hwlocality::memory::nodeset::NodeSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::types::ObjectType;

/// A machine as hwloc sees it.
#[derive(Debug)]
pub struct Machine {
    topology: Topology,
}

impl Machine {
    /// The machine this runs on, looked at once; `None` if hwloc cannot.
    #[must_use]
    pub fn this() -> Option<&'static Self> {
        static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
        let found = MACHINE.get_or_init(|| Topology::new().ok().map(|topology| Self { topology }));
        found.as_ref()
    }

    /// A machine that does not exist, such as `numa:2 core:4 pu:2`.
    ///
    /// # Errors
    ///
    /// What hwloc does not understand.
    pub fn synthetic(description: &str) -> Result<Self, String> {
        let builder = Topology::builder().from_synthetic(description);
        let topology = builder.map_err(|error| error.to_string())?.build();
        Ok(Self {
            topology: topology.map_err(|error| error.to_string())?,
        })
    }

    /// Memory nodes that have processors.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        let nodes = self.topology.objects_with_type(ObjectType::NUMANode);
        let with_processors =
            nodes.filter(|node| node.cpuset().is_some_and(|set| set.weight() != Some(0)));
        let numbers = with_processors.filter_map(|node| node.os_index());
        numbers
            .filter_map(|number| u32::try_from(number).ok())
            .collect()
    }

    /// Processors for `count` threads among those `allowed`: evenly over nodes,
    /// then over cores, siblings last. Neighbouring threads are neighbours on
    /// the machine.
    ///
    /// # Errors
    ///
    /// Fewer processors than threads.
    pub fn spread(&self, count: usize, allowed: &[u32]) -> Result<Vec<u32>, String> {
        // Whoever has fewer of its siblings, cores and nodes before it comes
        // first.
        let mut places = Vec::with_capacity(allowed.len());
        for (node, cores) in self.cores(allowed).iter().enumerate() {
            for (core, cpus) in cores.iter().enumerate() {
                let ranked = cpus.iter().enumerate();
                places.extend(ranked.map(|(rank, &cpu)| ((rank, core, node), cpu)));
            }
        }
        places.sort_unstable();
        if count > places.len() {
            let found = places.len();
            return Err(format!(
                "{count} threads, but hwloc knows {found} processors"
            ));
        }
        places.truncate(count);
        places.sort_unstable_by_key(|&((rank, core, node), _)| (node, core, rank));
        Ok(places.into_iter().map(|(_, cpu)| cpu).collect())
    }

    /// The allowed processors of each core of each node, without what has none.
    fn cores(&self, allowed: &[u32]) -> Vec<Vec<Vec<u32>>> {
        let members = |object: &TopologyObject| -> Vec<u32> {
            let set = object.cpuset();
            let cpus = set.iter().flat_map(|set| set.iter_set());
            cpus.filter_map(|cpu| u32::try_from(usize::from(cpu)).ok())
                .filter(|cpu| allowed.contains(cpu))
                .collect()
        };
        let nodes = self.topology.objects_with_type(ObjectType::NUMANode);
        let in_node = |node: &TopologyObject| {
            let local = members(node);
            let cores = self.topology.objects_with_type(ObjectType::Core);
            let cores = cores
                .map(members)
                .filter(|cpus| cpus.first().is_some_and(|cpu| local.contains(cpu)));
            cores.collect()
        };
        let cores: Vec<Vec<Vec<u32>>> = nodes.map(in_node).collect();
        cores
            .into_iter()
            .filter(|cores| !cores.is_empty())
            .collect()
    }

    /// Lets pages of `memory`, none of which has been touched, come from every
    /// node in turn. The nodes; empty if there is one, and nothing to do.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn interleave(&self, memory: &[u8]) -> Result<Vec<u32>, String> {
        let nodes = self.nodes();
        if nodes.len() < 2 {
            return Ok(Vec::new());
        }
        let mut set = NodeSet::new();
        for &node in &nodes {
            set.set(usize::try_from(node).map_err(|error| error.to_string())?);
        }
        let policy = MemoryBindingPolicy::Interleave;
        self.topology
            .bind_memory_area(memory, &set, policy, MemoryBindingFlags::empty())
            .map_err(|error| error.to_string())?;
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(count: u32) -> Vec<u32> {
        (0..count).collect()
    }

    /// Two nodes of four cores with two threads each: processors 0 to 7 are on
    /// the first node, 2k and 2k + 1 on one core.
    fn two_nodes() -> Machine {
        Machine::synthetic("numa:2 core:4 pu:2").unwrap()
    }

    #[test]
    fn threads_are_spread_over_nodes_then_cores_then_siblings() {
        let machine = two_nodes();
        assert_eq!(machine.nodes(), [0, 1]);
        let spread = |count| machine.spread(count, &all(16)).unwrap();
        assert_eq!(spread(1), [0]);
        assert_eq!(spread(2), [0, 8]);
        let four = spread(4);
        assert_eq!(four.iter().filter(|cpu| **cpu < 8).count(), 2, "{four:?}");
        let cores = |cpus: &[u32]| {
            let mut cores: Vec<u32> = cpus.iter().map(|cpu| cpu / 2).collect();
            cores.sort_unstable();
            cores.dedup();
            cores.len()
        };
        assert_eq!(cores(&four), 4);
        assert_eq!(cores(&spread(8)), 8);
        assert_eq!(cores(&spread(12)), 8);
        let six = spread(6);
        assert_eq!(six.iter().filter(|cpu| **cpu < 8).count(), 3, "{six:?}");
        assert!(six.is_sorted(), "{six:?}");
        let mut everything = spread(16);
        everything.sort_unstable();
        assert_eq!(everything, all(16));
    }

    #[test]
    fn only_allowed_processors_are_used() {
        let machine = two_nodes();
        // One core of the first node, two of the second.
        let allowed = [2, 3, 8, 10];
        let mut cpus = machine.spread(4, &allowed).unwrap();
        cpus.sort_unstable();
        assert_eq!(cpus, allowed);
        let three = machine.spread(3, &allowed).unwrap();
        assert!(three.iter().all(|cpu| allowed.contains(cpu)), "{three:?}");
        assert!(machine.spread(5, &allowed).is_err());
        assert!(machine.spread(1, &[99]).is_err());
    }

    #[test]
    fn one_node_is_left_alone() {
        let machine = Machine::synthetic("core:4 pu:1").unwrap();
        assert_eq!(machine.nodes(), [0]);
        assert_eq!(machine.interleave(&[0; 64]), Ok(Vec::new()));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Machine::synthetic("numa:x").is_err());
    }

    #[test]
    fn this_machine_has_a_node_for_its_threads() {
        let machine = Machine::this().expect("hwloc sees this machine");
        assert!(!machine.nodes().is_empty());
        assert_eq!(machine.spread(1, &[0]).unwrap(), [0]);
    }
}
