//! The safe interface against the formula in float64, and against what a careless or hostile caller gives it.
#[cfg(feature = "io")]
mod checkpoint;
mod contexts;
mod convolutions;
mod errors;
mod health;
mod layers;
mod mixture_training;
mod mixtures;
#[cfg(feature = "io")]
mod models;
mod names;
mod optimisers;
mod reference;
mod runs;
mod training;
