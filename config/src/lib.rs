//! The memory dial: from a budget to a plan.
#![forbid(unsafe_code)]
