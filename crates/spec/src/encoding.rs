//! Detection of text that is not UTF-8.

use std::fmt;

/// The position of the first invalid byte of a text that is not UTF-8, and its encoding if known.
///
/// ```
/// # use zoo_spec::NotUtf8;
/// assert_eq!(NotUtf8::detect("né".as_bytes()), None);
/// let latin = NotUtf8::detect(b"un\nn\xe9 ").expect("latin1");
/// assert_eq!((latin.line, latin.byte), (2, 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotUtf8 {
    /// Line of the first invalid byte, starting at 1.
    pub line: usize,
    /// Offset of that byte, starting at 0.
    pub byte: usize,
    /// The encoding of the byte order mark that the text starts with.
    pub bom: Option<&'static str>,
}

/// Byte order marks. UTF-32 comes first, because its mark starts with that of UTF-16.
const BOMS: [(&[u8], &str); 4] = [
    (&[0xff, 0xfe, 0, 0], "UTF-32"),
    (&[0, 0, 0xfe, 0xff], "UTF-32"),
    (&[0xff, 0xfe], "UTF-16"),
    (&[0xfe, 0xff], "UTF-16"),
];

impl NotUtf8 {
    /// The first error in these bytes, or `None` if they are UTF-8.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let byte = std::str::from_utf8(bytes).err()?.valid_up_to();
        let before = &bytes[..byte];
        let bom = BOMS.iter().find(|(bom, _)| bytes.starts_with(bom));
        Some(Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            byte,
            bom: bom.map(|(_, encoding)| *encoding),
        })
    }
}

impl fmt::Display for NotUtf8 {
    /// The message follows the name of the file. Without a byte order mark the encoding is not
    /// guessed: any bytes are valid latin1, so a wrong guess would silently give wrong characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, byte, bom } = self;
        match bom {
            Some(encoding) => write!(
                f,
                "line {line}: starts with a {encoding} byte order mark, but only UTF-8 is supported\n  \
                 help: iconv -f {encoding} -t UTF-8 FILE > NEW"
            ),
            None => write!(
                f,
                "line {line}: byte {byte} of the file is not UTF-8, but only UTF-8 is supported\n  \
                 help: iconv -f ENCODING -t UTF-8 FILE > NEW, where ENCODING is often latin1 or \
                 windows-1252, gb18030 (also for gbk), big5, shift_jis, euc-kr or windows-1251. \
                 Check the output: a wrong encoding may give wrong characters without an error"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks() {
        for (bytes, name) in [
            (&b"\xff\xfea\0"[..], "UTF-16"),
            (b"\xfe\xff\0a", "UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
            (b"\0\0\xfe\xff\0\0\0a", "UTF-32"),
        ] {
            let text = NotUtf8::detect(bytes).expect("not UTF-8").to_string();
            assert!(
                text.contains(&format!("a {name} byte order mark")),
                "{text}"
            );
            assert!(text.contains(&format!("iconv -f {name} -t")), "{text}");
        }
    }

    #[test]
    fn encoding_is_not_guessed_without_a_byte_order_mark() {
        // gbk, which is also valid latin1.
        let error = NotUtf8::detect(b"ok\n\xc4\xe3\xba\xc3");
        let text = error.expect("not UTF-8").to_string();
        assert!(text.starts_with("line 2: byte 3 of the file"), "{text}");
        assert!(text.contains("iconv -f ENCODING -t UTF-8"), "{text}");
        for name in ["latin1", "gbk", "shift_jis"] {
            assert!(text.contains(name), "{text}");
        }
    }
}
