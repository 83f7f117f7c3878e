//! Choices a user makes by name and the rest of the workspace acts on.

use crate::names::named_enum;

named_enum! {
    /// Which trunk blocks stay in memory when not all of them fit.
    Pins: "pin placement" {
        /// Evenly through the sweep, so that the disk's load is even.
        Spread => "spread",
        /// The first blocks of the sweep.
        Prefix => "prefix",
    }
}

named_enum! {
    /// Which experts stay in the cache slots.
    CachePolicy: "cache policy" {
        /// The deepest layers only, each with a least-recently-used set of its
        /// own: a walk through all layers cannot flush it.
        DeepLayers => "deep-layers",
        /// Least recently used over all layers.
        Lru => "lru",
        /// Least used, counts fading with time.
        DecayedFrequency => "decayed-frequency",
    }
}

named_enum! {
    /// How bytes are read from the disk.
    EngineChoice: "read engine" {
        /// io_uring where the kernel allows it, else threads.
        Auto => "auto",
        /// io_uring, or a refusal.
        Uring => "uring",
        /// Threads that call `pread`.
        Pread => "pread",
    }
}

named_enum! {
    /// Which instructions the arithmetic uses. The results never depend on it.
    IsaChoice: "instruction set" {
        /// The best the processor has.
        Auto => "auto",
        /// No vector instructions.
        Scalar => "scalar",
        /// AVX2 with FMA.
        Avx2 => "avx2",
        /// AVX-512.
        Avx512 => "avx512",
    }
}

named_enum! {
    /// In which form the attention keeps what it has seen.
    AttentionChoice: "attention form" {
        /// Compressed latents: small, and the definition of the numbers.
        Latent => "latent",
        /// Keys and values per head: larger, less arithmetic per position.
        Expanded => "expanded",
    }
}

named_enum! {
    /// Whether each compute thread stays on a processor of its own.
    ThreadPins: "thread placement" {
        /// Where each has one.
        On => "on",
        /// Threads run anywhere.
        Off => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_what_they_print() {
        for pins in Pins::ALL {
            assert_eq!(pins.to_string().parse::<Pins>().as_ref(), Ok(pins));
        }
        for policy in CachePolicy::ALL {
            assert_eq!(policy.name().parse::<CachePolicy>().as_ref(), Ok(policy));
        }
        assert_eq!(" LRU ".parse::<CachePolicy>(), Ok(CachePolicy::Lru));
        assert_eq!("AVX512".parse::<IsaChoice>(), Ok(IsaChoice::Avx512));
        assert!("avx".parse::<EngineChoice>().is_err());
        assert_eq!(
            serde_json::to_string(&AttentionChoice::Latent).unwrap(),
            "\"latent\""
        );
    }
}
