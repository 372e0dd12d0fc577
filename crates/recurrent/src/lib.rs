//! Recurrent layers over whole sequences.
