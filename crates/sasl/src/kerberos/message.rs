//! Messages of Kerberos that a service is told and says.

use super::der::{
    Der, put, put_field, put_integer_bytes, put_message, put_number, put_octets, put_sequence, put_time,
    seconds,
};
use super::{Malformed, Principal};

/// The mechanism's name, 1.2.840.113554.1.2.2, as an element.
const KERBEROS: [u8; 11] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// What stands behind the name, for each message.
const AP_REQ_ID: [u8; 2] = [1, 0];
const AP_REP_ID: [u8; 2] = [2, 0];

/// `[APPLICATION n]`, as elements with others in them.
const TICKET: u8 = 0x61;
const AUTHENTICATOR: u8 = 0x62;
const TICKET_PART: u8 = 0x63;
const AP_REQ: u8 = 0x6e;
const AP_REP: u8 = 0x6f;
const AP_REP_PART: u8 = 0x7b;

/// Options of an AP-REQ.
const USE_SESSION_KEY: u32 = 1 << 30;
const MUTUAL_REQUIRED: u32 = 1 << 29;

/// The type of the checksum that GSS-API has its flags in, and how long it is at least, in bytes.
const GSS_CHECKSUM: i64 = 0x8003;
const GSS_CHECKSUM_BYTES: usize = 24;

/// Names have no more parts than that.
const PARTS_MAX: usize = 16;

/// Authorization data that may be passed over: AD-IF-RELEVANT, AD-KDC-ISSUED, AD-CAMMAC, AD-WIN2K-PAC. All else says
/// what the client may not do, and is refused if it is not understood (RFC 4120 section 5.2.6).
const PASSED_OVER: [i64; 4] = [1, 4, 96, 128];

/// Something encrypted.
#[derive(Clone, Copy)]
pub(super) struct Encrypted<'a> {
    pub(super) etype: i64,
    /// The version of the key.
    pub(super) version: Option<i64>,
    pub(super) cipher: &'a [u8],
}

/// What a client says first.
pub(super) struct ApReq<'a> {
    pub(super) mutual: bool,
    pub(super) service: Principal,
    pub(super) ticket: Encrypted<'a>,
    pub(super) authenticator: Encrypted<'a>,
}

impl<'a> ApReq<'a> {
    /// Takes a first token of GSS-API apart.
    ///
    /// # Errors
    /// When it is not of Kerberos, or asks for what is not done here.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, String> {
        let malformed = |_| "the first token is no AP-REQ of Kerberos".to_owned();
        let mut all = Der(token);
        let content = all.take(0x60).map_err(malformed)?;
        if !all.0.is_empty() {
            return Err("something follows the AP-REQ in the first token".to_owned());
        }
        let Some(rest) = content.0.strip_prefix(&KERBEROS) else {
            return Err("the first token is of another mechanism than Kerberos (SPNEGO?)".to_owned());
        };
        let rest = rest.strip_prefix(&AP_REQ_ID).ok_or(Malformed).map_err(malformed)?;
        let (options, request) = Self::fields(Der(rest)).map_err(malformed)?;
        if options & USE_SESSION_KEY != 0 {
            return Err("the client wants to talk to a user, not to a service".to_owned());
        }
        Ok(request)
    }

    fn fields(mut message: Der<'a>) -> Result<(u32, Self), Malformed> {
        let mut fields = message.take(AP_REQ)?.sequence()?;
        expect(fields.field(0)?.integer()?, 5)?;
        expect(fields.field(1)?.integer()?, 14)?;
        let options = fields.field(2)?.flags()?;
        let mut ticket = fields.field(3)?.take(TICKET)?.sequence()?;
        let authenticator = encrypted(fields.field(4)?)?;
        expect(ticket.field(0)?.integer()?, 5)?;
        let realm = ticket.field(1)?.text()?;
        let service = principal(ticket.field(2)?, realm)?;
        let ticket = encrypted(ticket.field(3)?)?;
        let mutual = options & MUTUAL_REQUIRED != 0;
        Ok((options, Self { mutual, service, ticket, authenticator }))
    }
}

/// What the KDC has encrypted for the service.
pub(super) struct Ticket {
    pub(super) flags: u32,
    /// Encryption type and bytes of the session's key.
    pub(super) etype: i64,
    pub(super) key: Vec<u8>,
    pub(super) client: Principal,
    /// Whether the client's realm and the service's do not know each other.
    pub(super) has_transited: bool,
    pub(super) start_s: i64,
    pub(super) end_s: i64,
}

impl Ticket {
    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Der(plain).take(TICKET_PART)?.sequence()?;
        let flags = fields.field(0)?.flags()?;
        let (etype, key) = key(fields.field(1)?)?;
        let realm = fields.field(2)?.text()?;
        let client = principal(fields.field(3)?, realm)?;
        let mut transited = fields.field(4)?.sequence()?;
        transited.field(0)?.integer()?;
        let has_transited = !transited.field(1)?.octets()?.is_empty();
        let authenticated = fields.field(5)?.time()?;
        let start = fields.field_if(6)?.map(Der::time).transpose()?.unwrap_or(authenticated);
        let end = fields.field(7)?.time()?;
        fields.field_if(8)?;
        fields.field_if(9)?;
        authorization(fields.field_if(10)?)?;
        Ok(Self {
            flags,
            etype,
            key: key.to_vec(),
            client,
            has_transited,
            start_s: seconds(start)?,
            end_s: seconds(end)?,
        })
    }
}

/// By what a client shows that the ticket is its own.
pub(super) struct Authenticator<'a> {
    pub(super) client: Principal,
    pub(super) gss_flags: u32,
    pub(super) time_s: i64,
    /// The time as it was said, to be said back.
    time: &'a [u8; 15],
    microseconds: &'a [u8],
    /// Encryption type and bytes of the key that the client would have used.
    pub(super) subkey: Option<(i64, &'a [u8])>,
    /// The number of its first token.
    pub(super) number: u32,
}

impl<'a> Authenticator<'a> {
    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Der(plain).take(AUTHENTICATOR)?.sequence()?;
        expect(fields.field(0)?.integer()?, 5)?;
        let realm = fields.field(1)?.text()?;
        let client = principal(fields.field(2)?, realm)?;
        // RFC 4121 demands it.
        let mut checksum = fields.field(3)?.sequence()?;
        expect(checksum.field(0)?.integer()?, GSS_CHECKSUM)?;
        let checksum = checksum.field(1)?.octets()?;
        if checksum.len() < GSS_CHECKSUM_BYTES || checksum[..4] != [16, 0, 0, 0] {
            return Err(Malformed);
        }
        let gss_flags = u32::from_le_bytes([checksum[20], checksum[21], checksum[22], checksum[23]]);
        let microseconds = fields.field(4)?;
        microseconds.integer()?;
        let time = fields.field(5)?.time()?;
        let subkey = fields.field_if(6)?.map(key).transpose()?;
        let number = fields.field_if(7)?.map(Der::integer).transpose()?.unwrap_or(0);
        authorization(fields.field_if(8)?)?;
        Ok(Self {
            client,
            gss_flags,
            time_s: seconds(time)?,
            time,
            microseconds: microseconds.integer_bytes()?,
            subkey,
            // Some write it as if it had a sign.
            number: u32::try_from(number & 0xffff_ffff).map_err(|_| Malformed)?,
        })
    }
}

/// What proves to a client that the server could read its authenticator, to be encrypted.
/// `key` is the type and the bytes of the server's key for what follows; it counts its tokens as the client does.
pub(super) fn reply_part(authenticator: &Authenticator<'_>, (etype, key): (u32, &[u8])) -> Vec<u8> {
    let key = put_sequence(&[put_field(0, &put_number(etype)), put_field(1, &put_octets(key))]);
    put_message(
        AP_REP_PART,
        &[
            put_field(0, &put_time(authenticator.time)),
            put_field(1, &put_integer_bytes(authenticator.microseconds)),
            put_field(2, &key),
            put_field(3, &put_number(authenticator.number)),
        ],
    )
}

/// The token with this.
pub(super) fn reply(etype: u32, cipher: &[u8]) -> Vec<u8> {
    let part = put_sequence(&[put_field(0, &put_number(etype)), put_field(2, &put_octets(cipher))]);
    let message = put_message(
        AP_REP,
        &[put_field(0, &put_number(5)), put_field(1, &put_number(15)), put_field(2, &part)],
    );
    put(0x60, &[&KERBEROS[..], &AP_REP_ID, &message].concat())
}

fn expect(found: i64, wanted: i64) -> Result<(), Malformed> {
    if found == wanted { Ok(()) } else { Err(Malformed) }
}

fn encrypted(mut field: Der<'_>) -> Result<Encrypted<'_>, Malformed> {
    let mut fields = field.sequence()?;
    let etype = fields.field(0)?.integer()?;
    let version = fields.field_if(1)?.map(Der::integer).transpose()?;
    // It has no sign, though some write one.
    let version = version.map(|version| version & 0xffff_ffff);
    Ok(Encrypted { etype, version, cipher: fields.field(2)?.octets()? })
}

fn key(mut field: Der<'_>) -> Result<(i64, &[u8]), Malformed> {
    let mut fields = field.sequence()?;
    Ok((fields.field(0)?.integer()?, fields.field(1)?.octets()?))
}

fn principal(mut field: Der<'_>, realm: &str) -> Result<Principal, Malformed> {
    let mut fields = field.sequence()?;
    fields.field(0)?.integer()?;
    let mut rest = fields.field(1)?.sequence()?;
    let mut parts = Vec::new();
    while !rest.0.is_empty() {
        if parts.len() == PARTS_MAX {
            return Err(Malformed);
        }
        parts.push(rest.text()?.to_owned());
    }
    Ok(Principal { parts, realm: realm.to_owned() })
}

fn authorization(field: Option<Der<'_>>) -> Result<(), Malformed> {
    let Some(mut field) = field else { return Ok(()) };
    let mut rest = field.sequence()?;
    while !rest.0.is_empty() {
        let kind = rest.sequence()?.field(0)?.integer()?;
        if !PASSED_OVER.contains(&kind) {
            return Err(Malformed);
        }
    }
    Ok(())
}
