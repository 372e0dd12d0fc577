//! Cases that misbehave, for tests of what becomes of them.

zoo_spec::words! {
    /// A case that misbehaves on purpose, so that tests can show what becomes of one.
    pub enum Fault: "fault" {
        Hang = "hang",
        /// Takes all the memory there is.
        Exhaust = "exhaust",
        Wrong = "wrong",
        /// A model whose results are one percent off.
        Inexact = "inexact",
        Crash = "crash",
    }
}
