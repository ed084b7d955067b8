//! Everything that is tested from outside, in one program: one link step.

mod contract;
mod layers;
