//! Guesses and their number, against the definition, against an adversary and in
//! simulated texts.

mod adversary;
mod lookup;
mod simulation;
