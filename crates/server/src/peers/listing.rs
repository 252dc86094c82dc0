//! The list of all readers below a process, however many are in between: each tells its parent.
//!
//! ```text
//! list   := left_out u32, count u16, reader*
//! reader := parent u16          0: right below who says it; else below the reader before with this number, from 1 on
//!           address             0 and 4 bytes, or 1 and 16 bytes
//!           client_port u16, connected i64 (milliseconds since the epoch)
//!           len u8, text        name and version of the program
//! ```
//! All numbers begin with their lowest byte.

use std::net::{IpAddr, SocketAddr};

use super::hello::{SOFTWARE_BYTES_MAX, printable};

/// So many readers stand in a list at most; of more only the number is told.
pub(super) const LISTED_MAX: usize = 512;
/// The longest reader: its own fields, and its text.
const READER_BYTES_MAX: usize = 2 + 17 + 2 + 8 + 1 + SOFTWARE_BYTES_MAX;
/// The longest list.
pub(super) const LIST_BYTES_MAX: usize = 6 + LISTED_MAX * READER_BYTES_MAX;

/// A reader somewhere below a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedReader {
    /// The one that it is below, by its place in the list, where it stands before; `None` right below the process.
    pub(crate) parent: Option<usize>,
    /// Where its clients find it, as its parent sees it: the port is 0 where it has not said which that is.
    pub(crate) address: SocketAddr,
    /// Since when it is below its parent, milliseconds since the epoch.
    pub(crate) since_ms: i64,
    /// Name and version of its program.
    pub(crate) software: String,
}

/// All readers below a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReaderList {
    pub(crate) readers: Vec<ListedReader>,
    /// How many more there are.
    pub(crate) left_out: u32,
}

impl ReaderList {
    /// Puts one more right below the process. Returns its place, if there is room.
    pub(super) fn add(&mut self, reader: ListedReader) -> Option<usize> {
        if self.readers.len() >= LISTED_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.readers.push(reader);
        Some(self.readers.len() - 1)
    }

    /// Those below a reader, which has this place, as it has listed them.
    pub(super) fn add_below(&mut self, place: Option<usize>, list: &Self) {
        self.left_out = self.left_out.saturating_add(list.left_out);
        let mut places = Vec::with_capacity(list.readers.len());
        for reader in &list.readers {
            let above = reader.parent.map_or(place, |parent| places.get(parent).copied().flatten());
            let added = match above {
                Some(_) => self.add(ListedReader { parent: above, ..reader.clone() }),
                None => {
                    self.left_out = self.left_out.saturating_add(1);
                    None
                }
            };
            places.push(added);
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.left_out.to_le_bytes());
        out.extend_from_slice(&u16::try_from(self.readers.len()).unwrap_or(u16::MAX).to_le_bytes());
        for reader in &self.readers {
            let parent = reader.parent.map_or(0, |parent| u16::try_from(parent + 1).unwrap_or(u16::MAX));
            out.extend_from_slice(&parent.to_le_bytes());
            match reader.address.ip() {
                IpAddr::V4(ip) => {
                    out.push(0);
                    out.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    out.push(1);
                    out.extend_from_slice(&ip.octets());
                }
            }
            out.extend_from_slice(&reader.address.port().to_le_bytes());
            out.extend_from_slice(&reader.since_ms.to_le_bytes());
            let text = reader.software.as_bytes();
            let text = &text[..text.len().min(SOFTWARE_BYTES_MAX)];
            out.push(u8::try_from(text.len()).unwrap_or(0));
            out.extend_from_slice(text);
        }
        out
    }

    /// Reads what [`ReaderList::encode`] wrote. `None` when it is none.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let left_out = u32::from_le_bytes(take(&mut bytes)?);
        let count = usize::from(u16::from_le_bytes(take(&mut bytes)?));
        if count > LISTED_MAX {
            return None;
        }
        let mut readers = Vec::with_capacity(count);
        for place in 0..count {
            let parent = match usize::from(u16::from_le_bytes(take(&mut bytes)?)) {
                0 => None,
                number if number <= place => Some(number - 1),
                _ => return None,
            };
            let ip = match take::<1>(&mut bytes)? {
                [0] => IpAddr::from(take::<4>(&mut bytes)?),
                [1] => IpAddr::from(take::<16>(&mut bytes)?),
                _ => return None,
            };
            let port = u16::from_le_bytes(take(&mut bytes)?);
            let since_ms = i64::from_le_bytes(take(&mut bytes)?);
            let [len] = take(&mut bytes)?;
            let text = bytes.split_off(..usize::from(len)).filter(|text| text.len() <= SOFTWARE_BYTES_MAX)?;
            let software = printable(text);
            readers.push(ListedReader { parent, address: SocketAddr::new(ip, port), since_ms, software });
        }
        bytes.is_empty().then_some(Self { readers, left_out })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(parent: Option<usize>, port: u16) -> ListedReader {
        let address = match parent {
            None => ([10, 0, 0, 1], port).into(),
            Some(_) => ([1, 2, 3, 4, 5, 6, 7, 8], port).into(),
        };
        ListedReader { parent, address, since_ms: -5, software: "stoa 1".to_owned() }
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_nothing_else_is() {
        let list =
            ReaderList { readers: vec![reader(None, 1), reader(Some(0), 2), reader(None, 3)], left_out: 7 };
        let bytes = list.encode();
        assert_eq!(ReaderList::decode(&bytes), Some(list));
        assert!((0..bytes.len()).all(|len| ReaderList::decode(&bytes[..len]).is_none()));
        assert!(ReaderList::decode(&[&bytes[..], &[0]].concat()).is_none());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = ReaderList::decode(&changed);
        }
        let below_itself = ReaderList { readers: vec![reader(Some(0), 1)], left_out: 0 };
        assert_eq!(ReaderList::decode(&below_itself.encode()), None);
        let too_many = ReaderList { readers: vec![reader(None, 1); LISTED_MAX + 1], left_out: 0 };
        assert_eq!(ReaderList::decode(&too_many.encode()), None);
    }

    #[test]
    fn those_below_a_reader_keep_their_places_and_what_is_too_much_is_counted() {
        let below = ReaderList { readers: vec![reader(None, 1), reader(Some(0), 2)], left_out: 3 };
        let mut all = ReaderList::default();
        all.add(reader(None, 8));
        let place = all.add(reader(None, 9));
        all.add_below(place, &below);
        let parents: Vec<_> =
            all.readers.iter().map(|reader| (reader.address.port(), reader.parent)).collect();
        assert_eq!(parents, [(8, None), (9, None), (1, Some(1)), (2, Some(2))]);
        assert_eq!(all.left_out, 3);
        let mut full = ReaderList { readers: vec![reader(None, 1); LISTED_MAX - 1], left_out: 0 };
        full.add_below(Some(0), &below);
        assert_eq!((full.readers.len(), full.left_out), (LISTED_MAX, 4));
        assert!(full.encode().len() <= LIST_BYTES_MAX);
        let place = full.add(reader(None, 5));
        full.add_below(place, &below);
        assert_eq!((place, full.left_out), (None, 4 + 1 + 5), "nobody is shown below another one");
    }
}
