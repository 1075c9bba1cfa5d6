//! Joins the launch, the probes, the watchers and the matcher, and writes the run folder. The only room that knows all
//! the others below it.
