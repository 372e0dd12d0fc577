//! Text in another encoding than the one that is read.

use std::fmt;

/// Bytes that are not UTF-8: where that is seen first, and what they may be.
///
/// ```
/// # use zoo_spec::NotUtf8;
/// assert_eq!(NotUtf8::of("né".as_bytes()), None);
/// let latin = NotUtf8::of(b"un\nn\xe9 ").expect("a byte of latin1");
/// assert_eq!((latin.line, latin.byte), (2, 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotUtf8 {
    /// The line of the first wrong byte, counted from 1.
    pub line: usize,
    /// Where the byte is, counted from 0.
    pub byte: usize,
    /// The encoding whose mark the bytes begin with.
    pub marked: Option<&'static str>,
}

/// What encodings put before their text. That of UTF-32 begins as that of UTF-16 does.
const MARKS: [(&[u8], &str); 4] = [
    (&[0xff, 0xfe, 0, 0], "UTF-32"),
    (&[0, 0, 0xfe, 0xff], "UTF-32"),
    (&[0xff, 0xfe], "UTF-16"),
    (&[0xfe, 0xff], "UTF-16"),
];

impl NotUtf8 {
    /// What is wrong with these bytes, if they are not UTF-8.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let byte = std::str::from_utf8(bytes).err()?.valid_up_to();
        let before = &bytes[..byte];
        let marked = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
        Some(Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            byte,
            marked: marked.map(|(_, name)| *name),
        })
    }
}

impl fmt::Display for NotUtf8 {
    /// Without the name of the file, which comes first. No encoding is guessed: any bytes are
    /// latin1, and what is none becomes wrong letters without a word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, byte, marked } = self;
        match marked {
            Some(encoding) => write!(
                f,
                "line {line}: it begins with the mark of {encoding}, and only UTF-8 is read\n  \
                 do: iconv -f {encoding} -t UTF-8 FILE > NEW"
            ),
            None => write!(
                f,
                "line {line}: byte {byte} of the file is not UTF-8, and only UTF-8 is read\n  \
                 do: iconv -f ENCODING -t UTF-8 FILE > NEW, by the encoding it is in: often latin1 \
                 or windows-1252, gb18030 (also for gbk), big5, shift_jis, euc-kr or windows-1251. \
                 A wrong one may give wrong letters and no error: look at what comes out"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_the_encoding() {
        for (bytes, name) in [
            (&b"\xff\xfea\0"[..], "UTF-16"),
            (b"\xfe\xff\0a", "UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
            (b"\0\0\xfe\xff\0\0\0a", "UTF-32"),
        ] {
            let said = NotUtf8::of(bytes).map(|it| it.to_string());
            let said = said.expect("it is not UTF-8");
            assert!(said.contains(&format!("the mark of {name}, ")), "{said}");
            assert!(said.contains(&format!("iconv -f {name} -t")), "{said}");
        }
    }

    #[test]
    fn without_one_nothing_is_guessed() {
        // In gbk; as latin1 it would become other letters.
        let said = NotUtf8::of(b"ok\n\xc4\xe3\xba\xc3").map(|it| it.to_string());
        let said = said.expect("it is not UTF-8");
        assert!(said.starts_with("line 2: byte 3 of the file"), "{said}");
        assert!(said.contains("iconv -f ENCODING -t UTF-8"), "{said}");
        for name in ["latin1", "gbk", "shift_jis"] {
            assert!(said.contains(name), "{said}");
        }
    }
}
