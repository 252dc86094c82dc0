//! `key=value` pairs of a digest-response, taken apart as the JDK does it.

/// The directives of a response, those that are known here once each.
pub(super) struct Directives(Vec<(&'static str, Vec<u8>)>);

/// Whatever else there is has no meaning here (`auth-param`).
const KNOWN: [&str; 12] = [
    "username",
    "realm",
    "nonce",
    "cnonce",
    "nc",
    "qop",
    "digest-uri",
    "response",
    "maxbuf",
    "charset",
    "cipher",
    "authzid",
];

impl Directives {
    /// Takes a response apart. Commas and blanks both separate.
    ///
    /// # Errors
    /// When it is not of the grammar, or has a known directive twice.
    pub(super) fn parse(response: &[u8]) -> Result<Self, String> {
        let mut found = Self(Vec::new());
        let mut rest = Rest(response);
        loop {
            while rest.next_if(|next| next == b',' || is_blank(next)).is_some() {}
            if rest.0.is_empty() {
                return Ok(found);
            }
            let key = rest.until(|next| next == b'=' || next == b',' || is_blank(next));
            while rest.next_if(is_blank).is_some() {}
            if key.is_empty() || rest.next_if(|next| next == b'=').is_none() {
                return Err("a directive of the digest-response has no key, or no = behind it".to_owned());
            }
            while rest.next_if(is_blank).is_some() {}
            let value = rest.value()?;
            let known = KNOWN.iter().find(|known| key.eq_ignore_ascii_case(known.as_bytes()));
            let Some(known) = known else { continue };
            if found.get(known).is_some() {
                return Err(format!("the digest-response has the directive {known} twice"));
            }
            found.0.push((known, value));
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_slice())
    }

    /// # Errors
    /// When it is not there.
    pub(super) fn needed(&self, key: &str) -> Result<&[u8], String> {
        self.get(key).ok_or_else(|| format!("the digest-response has no {key}"))
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn next_if(&mut self, wanted: impl Fn(u8) -> bool) -> Option<u8> {
        let (first, rest) = self.0.split_first().filter(|(first, _)| wanted(**first))?;
        self.0 = rest;
        Some(*first)
    }

    fn until(&mut self, end: impl Fn(u8) -> bool) -> &'a [u8] {
        let count = self.0.iter().position(|next| end(*next)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn value(&mut self) -> Result<Vec<u8>, String> {
        if self.next_if(|next| next == b'"').is_none() {
            let value = self.until(|next| next == b',' || is_blank(next));
            return Ok(value.to_vec());
        }
        let mut value = Vec::new();
        loop {
            match self.next_if(|_| true) {
                Some(b'"') => break,
                Some(b'\\') => value.extend(self.next_if(|_| true)),
                Some(other) => value.push(other),
                None => return Err("a value of the digest-response has no second quote".to_owned()),
            }
        }
        match self.0.first() {
            Some(next) if *next != b',' && !is_blank(*next) => {
                Err("a value of the digest-response goes on behind its second quote".to_owned())
            }
            _ => Ok(value),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}
