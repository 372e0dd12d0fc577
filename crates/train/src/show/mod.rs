//! What is shown while training.
