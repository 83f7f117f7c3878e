//! Arithmetic with a stated exactness contract.

