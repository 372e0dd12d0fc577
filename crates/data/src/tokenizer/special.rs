//! Tokens that are no text, the same in every tokenizer.

/// Fills up what is shorter than its neighbours.
pub const PAD: u32 = 0;
/// Stands for what is not in the vocabulary.
pub const UNKNOWN: u32 = 1;
/// What a text that is to be written begins with.
pub const BEGIN: u32 = 2;
/// What it ends with.
pub const END: u32 = 3;

/// How they are written, in the order of their ids.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<unk>", "<s>", "</s>"];

/// Whether a token stands for nothing that is in a text. An unknown one stands for something.
pub(super) fn is_silent(id: u32) -> bool {
    matches!(id, PAD | BEGIN | END)
}
