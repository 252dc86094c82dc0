import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import javax.security.auth.x500.X500Principal;

/**
 * Asks Java how it prints names, and which texts it takes for one.
 *
 * java Names.java names SEED COUNT   some by hand and COUNT random ones: DER in hexadecimal, and what Java prints
 * java Names.java texts SEED COUNT   the same for texts: whether it is a name, and the text
 *
 * Texts are written with %XX for what is no printable ASCII, space and percent.
 */
public class Names {
    static final String[] KINDS = {
        "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.10", "2.5.4.11", "2.5.4.9",
        "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1", "2.5.4.5", "1.2.840.113549.1.9.1", "2.5.4.4",
        "2.5.4.42", "2.5.4.12", "2.999.5", "1.3.6.1.4.1.311.20.2.3",
    };
    static final int UTF8 = 0x0c, NUMERIC = 0x12, PRINTABLE = 0x13, T61 = 0x14, IA5 = 0x16, GENERAL = 0x1b,
        UNIVERSAL = 0x1c, BMP = 0x1e, INTEGER = 2, BITS = 3;
    static final int[] TAGS = {UTF8, PRINTABLE, T61, IA5, GENERAL, BMP, UNIVERSAL, NUMERIC, INTEGER};

    static byte[] der(int tag, byte[]... parts) {
        var content = new ByteArrayOutputStream();
        for (var part : parts) {
            content.writeBytes(part);
        }
        var out = new ByteArrayOutputStream();
        out.write(tag);
        if (content.size() >= 256) {
            out.write(0x82);
            out.write(content.size() >> 8);
        } else if (content.size() >= 128) {
            out.write(0x81);
        }
        out.write(content.size());
        out.writeBytes(content.toByteArray());
        return out.toByteArray();
    }

    static byte[] oid(String dotted) {
        var numbers = dotted.split("\\.");
        var out = new ByteArrayOutputStream();
        for (int i = 1; i < numbers.length; i++) {
            long number = Long.parseLong(numbers[i]) + (i == 1 ? 40 * Long.parseLong(numbers[0]) : 0);
            for (int shift = 56; shift >= 0; shift -= 7) {
                if (number >> shift != 0 || shift == 0) {
                    out.write((int) (number >> shift & 0x7f) | (shift == 0 ? 0 : 0x80));
                }
            }
        }
        return der(6, out.toByteArray());
    }

    static byte[] attribute(String kind, int tag, String value) {
        var charset = tag == BMP ? StandardCharsets.UTF_16BE : tag == T61 ? StandardCharsets.ISO_8859_1
            : StandardCharsets.UTF_8;
        return der(0x30, oid(kind), der(tag, value.getBytes(charset)));
    }

    static byte[] name(byte[]... sets) {
        return der(0x30, sets);
    }

    static byte[] one(int tag, String value) {
        return name(der(0x31, attribute("2.5.4.3", tag, value)));
    }

    static List<byte[]> byHand() {
        var all = new ArrayList<byte[]>();
        all.add(name());
        all.add(name(der(0x31, attribute("2.5.4.6", PRINTABLE, "DE")), der(0x31, attribute("2.5.4.8", UTF8, "Hessen")),
            der(0x31, attribute("2.5.4.7", UTF8, "Bad Homburg")), der(0x31, attribute("2.5.4.9", UTF8, "Am Markt 1")),
            der(0x31, attribute("2.5.4.10", UTF8, "Example, Inc.")), der(0x31, attribute("2.5.4.11", UTF8, "R&D")),
            der(0x31, attribute("2.5.4.3", UTF8, "zk-1"))));
        all.add(name(der(0x31, attribute(KINDS[7], IA5, "com")), der(0x31, attribute(KINDS[7], IA5, "example")),
            der(0x31, attribute(KINDS[8], UTF8, "jdoe"))));
        all.add(name(der(0x31, attribute("2.5.4.3", UTF8, "a"), attribute("2.5.4.11", UTF8, "b")),
            der(0x31, attribute("2.5.4.10", UTF8, "o"))));
        all.add(name(der(0x31, attribute("2.5.4.11", UTF8, "b"), attribute("2.5.4.3", UTF8, "a"),
            attribute("2.5.4.5", PRINTABLE, "12"))));
        all.add(name(der(0x31, attribute("1.2.840.113549.1.9.1", IA5, "a@example.com")),
            der(0x31, attribute("2.5.4.3", UTF8, "mail"))));
        all.add(name(der(0x31, attribute("2.5.4.5", PRINTABLE, "0042")), der(0x31, attribute("2.5.4.4", UTF8, "Doe")),
            der(0x31, attribute("2.5.4.42", UTF8, "J")), der(0x31, attribute("2.5.4.12", UTF8, "Dr"))));
        for (var value : new String[] {
            "", "plain", "a,b", "a+b=c<d>e;f", "\"quoted\"", "back\\slash", "#lead", "in#side", " lead", "trail ",
            "  both  ", "   ", "a  b", "\rcr\r", "\nnl\n", "\ttab\t", "nul\u0000in", "J\u00f6rg", "\u4e2d\u6587",
            "\ud83d\ude00 smile", "e\u0301", "*.example.com", "a/b:c?d'(e)", "a@b_c!d&e", "\u00a0nbsp\u00a0", "x".repeat(200),
        }) {
            all.add(one(UTF8, value));
        }
        for (int tag : TAGS) {
            all.add(one(tag, "Text 1"));
            all.add(one(tag, "J\u00f6rg, #"));
        }
        all.add(name(der(0x31, der(0x30, oid("2.5.4.3"), der(UTF8, new byte[] {'a', (byte) 0xff, 'b', (byte) 0xc3})))));
        all.add(name(der(0x31, der(0x30, oid("2.5.4.3"), der(UTF8, new byte[] {(byte) 0xed, (byte) 0xa0, (byte) 0x80, 'x'})))));
        all.add(name(der(0x31, der(0x30, oid("2.5.4.3"), der(0x30, der(UTF8, new byte[] {'a'}))))));
        all.add(name(der(0x31, attribute("2.999.123456789012345678", UTF8, "big"))));
        return all;
    }

    static final String LETTERS = "ab ,+=\"\\<>#;\r\n\u0000\u00e9\u20ac09'./:-_*@";

    static String word(Random random, String letters, int most) {
        var out = new StringBuilder();
        for (int left = random.nextInt(most + 1); left > 0; left--) {
            out.append(letters.charAt(random.nextInt(letters.length())));
        }
        return out.toString();
    }

    /** What is UTF-8 only in part. */
    static byte[] bytes(Random random) {
        int[] some = {'a', ' ', 0x80, 0xbf, 0xc0, 0xc3, 0xe0, 0xe2, 0xed, 0xa0, 0xef, 0xf0, 0xf4, 0xf5, 0xff, 0x90};
        var out = new byte[random.nextInt(6)];
        for (int i = 0; i < out.length; i++) {
            out[i] = (byte) some[random.nextInt(some.length)];
        }
        return out;
    }

    static byte[] random(Random random) {
        var sets = new byte[random.nextInt(4)][];
        for (int i = 0; i < sets.length; i++) {
            var attributes = new byte[1 + random.nextInt(4) / 3][];
            for (int j = 0; j < attributes.length; j++) {
                int tag = random.nextBoolean() ? UTF8 : TAGS[random.nextInt(TAGS.length)];
                if (random.nextInt(6) == 0) {
                    attributes[j] = der(0x30, oid("2.5.4.3"), der(UTF8, bytes(random)));
                    continue;
                }
                attributes[j] = attribute(KINDS[random.nextInt(KINDS.length)], tag, word(random, LETTERS, 7));
            }
            sets[i] = der(0x31, attributes);
        }
        return name(sets);
    }

    static final String[] TEXTS = {
        "", " ", ",", "CN", "CN=", "=a", "CN=a", "cn=a", " CN = a ", "CN=a,", ",CN=a", "CN=a,,O=b", "CN=a;O=b",
        "CN=a+OU=b", "CN=a+", "+CN=a", "CN=a,O=b, C=DE", "X=a", "S=a", "ST=a", "STREET=a", "EMAILADDRESS=a@b", "E=a",
        "SERIALNUMBER=1", "GIVENNAME=a", "SURNAME=a", "SN=a", "T=a", "TITLE=a", "DNQ=a", "DNQUALIFIER=a", "IP=1.2.3.4",
        "GENERATION=a", "INITIALS=a", "EMAIL=a", "UID=a", "USERID=a", "DC=a", "OID.2.5.4.3=a", "oid.2.5.4.3=a",
        "2.5.4.3=a", "2.5=a", "2=a", "3.1=a", "1.40=a", "0.39=a", "2.100=a", "2.5.4.=a", ".2.5=a", "2..5=a", "2.5.-1=a",
        "2.5.4.99999999999999999999=a", "02.5=a", "2.05=a", "OID.=a", "CN=#1301", "CN=#130161", "CN=#13016", "CN=#",
        "CN=#zz", "CN=#0c03414243", "CN=#0C03414243", "CN=#0500", "CN=#3000", "CN=#13016161", "CN=#130161,O=b",
        "CN=#130161 ", "CN=\\#a", "CN=\"a\"", "CN=\"a", "CN=a\"", "CN=\"a\"b", "CN=\"a\" ", "CN=\"a,b\"", "CN=\"a\\\"b\"",
        "CN=\"a+b\"", "CN=\"a\\,b\"", "CN=\"a\\b\"", "CN=\"\\41\"", "CN=\"\\4\"", "CN=\"\"", "CN=a\\,b", "CN=a\\", "CN=a\\\\",
        "CN=a\\\\,O=b", "CN=a\\b", "CN=a\\bc", "CN=a\\4", "CN=a\\41", "CN=a\\ ", "CN=a\\ b", "CN=a\\=b", "CN=a=b", "CN=a\\\nb",
        "CN=a<b", "CN=a>b", "CN=a\\<b", "CN=a\\>b", "CN=a\\;b", "CN=a\\+b", "CN=J\u00f6rg", "CN=\u4e2d", "CN=a\nb", "CN=a\tb",
        "CN=\ta", "\tCN\t=a", "C N=a", "CN=a, O = b , C = DE", "CN=a\r", "O=a,CN=\"b, c\", DC=d", "anyone", "CN=a b  c",
        "CN=a\\xb", "CN=\\20a", "CN=\\e4\\b8\\ad", "CN=a\\\\\\,b", "CN=a\\\\\\\\,O=b", "CN=a\\\\+O=b", "CN=a\\\\\\+b",
        "CN=*", "CN=a,O=", "CN=,O=a", "CN=a;", "CN=a ;O=b", "CN=a#b", "CN=a'b", "\u00a0CN=a", "K=a", "\u0130P=a", "C\u0307N=a",
    };

    static String randomText(Random random) {
        String[] parts = {"CN", "O", "=", "=", "=", ",", ";", "+", "\"", "\\", "#", " ", "a", "b", "41", "x", "\n", "<", "13",
            "01", "61", "2.5.4.3", "OID.", "CN=a", "O=b", "\\,", "\\\\", "\"a\"", "CN=", ",O="};
        var out = new StringBuilder(random.nextBoolean() ? "CN=" : "");
        for (int left = 1 + random.nextInt(7); left > 0; left--) {
            out.append(parts[random.nextInt(parts.length)]);
        }
        return out.toString();
    }

    static String hex(byte[] bytes) {
        var out = new StringBuilder();
        for (byte each : bytes) {
            out.append(String.format("%02x", each));
        }
        return out.toString();
    }

    static String shown(String text) {
        var out = new StringBuilder();
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
            out.append(each <= ' ' || each >= 0x7f || each == '%' ? String.format("%%%02x", each) : (char) each);
        }
        return out.toString();
    }

    static boolean isName(String text) {
        try {
            new X500Principal(text);
            return true;
        } catch (IllegalArgumentException error) {
            return false;
        }
    }

    public static void main(String[] arguments) {
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var random = new Random(Long.parseLong(arguments[1]));
        int count = Integer.parseInt(arguments[2]);
        if (arguments[0].equals("names")) {
            var all = byHand();
            for (int i = 0; i < count; i++) {
                all.add(random(random));
            }
            for (var name : all) {
                out.println(hex(name) + " " + shown(new X500Principal(name).getName()));
            }
        } else {
            var all = new ArrayList<>(List.of(TEXTS));
            for (int i = 0; i < count; i++) {
                all.add(randomText(random));
            }
            for (var text : all) {
                out.println(isName(text) + " " + shown(text));
            }
        }
        out.flush();
    }
}
