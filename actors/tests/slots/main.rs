//! The books of the expert cache.

mod cases;
mod driver;
mod timing;
