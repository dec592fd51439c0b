//! The flat JSON of a request's header: one object of texts, whole numbers and one object of texts.
use std::borrow::Cow;

pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// `None`: no UTF-8.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        Some(Scanner {
            text: std::str::from_utf8(bytes).ok()?,
            at: 0,
        })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Takes this byte, behind white space.
    pub fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `true`, `false` or `null`.
    pub fn takes_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    pub fn is_at_text(&mut self) -> bool {
        self.skip_space();
        self.peek() == Some(b'"')
    }

    pub fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// A whole number of at most 18 digits.
    pub fn number(&mut self) -> Option<i64> {
        self.skip_space();
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let digits = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let length = self.at - digits;
        let is_plain =
            (1..=18).contains(&length) && (length == 1 || self.text.as_bytes()[digits] != b'0');
        let goes_on = matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_plain && !goes_on {
            self.text[start..self.at].parse().ok()
        } else {
            None
        }
    }

    /// A text, borrowed unless it has escapes. `None` also for lone surrogates.
    pub fn string(&mut self) -> Option<Cow<'a, str>> {
        if !self.takes(b'"') {
            return None;
        }
        let bytes = self.text.as_bytes();
        let mut start = self.at;
        let mut whole = String::new();
        loop {
            match *bytes.get(self.at)? {
                b'"' => {
                    let last = &self.text[start..self.at];
                    self.at += 1;
                    return Some(if whole.is_empty() {
                        Cow::Borrowed(last)
                    } else {
                        Cow::Owned(whole + last)
                    });
                }
                b'\\' => {
                    whole.push_str(&self.text[start..self.at]);
                    self.at += 1;
                    whole.push(self.escaped()?);
                    start = self.at;
                }
                byte if byte < 0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex4()?;
                if (0xD800..0xDC00).contains(&unit) {
                    if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                        return None;
                    }
                    self.at += 2;
                    let low = self.hex4()?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return None;
                    }
                    return char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
                }
                char::from_u32(unit)?
            }
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, &digit| {
            Some(value << 4 | char::from(digit).to_digit(16)?)
        })
    }
}
