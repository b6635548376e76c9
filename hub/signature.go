package hub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// signedAttributes are what a producer signature covers, in this order (lib-streaming v4, signature version 1).
var signedAttributes = [...]string{
	"specversion", "id", "source", "type", "time", "subject", "tenantid", "datacontenttype", "dataschema",
	"schemaversion", "resourcetype", "eventtype", "systemevent", "sigkid", "sigts",
}

const (
	signatureDomain = "lerian.streaming.sig.v1\x00"
	signaturePrefix = "v1."
)

// authenticate verifies the producer's signature when keys are configured, and returns the reading of the message that
// the producer signed. An unsigned event may be authentic and is quarantined; one with a bad signature is not (law 5:
// what is not authentic is counted, not kept).
func (n *Normaliser) authenticate(d decoded) (attributes, Verdict, string) {
	attrs := d.readings[0]
	if len(n.keys) == 0 {
		return attrs, Accept, ""
	}
	if attrs["sig"] == "" {
		return attrs, Quarantine, "not signed, and hub.signing_keys is set"
	}
	sum := sha256.Sum256(d.data)
	known := false
	for _, reading := range d.readings {
		for _, key := range n.keys {
			if !key.speaksFor(reading) {
				continue
			}
			known = true
			if verifySignature(key.Secret.Reveal(), reading, sum) {
				return reading, Accept, ""
			}
		}
	}
	if !known {
		return attrs, Reject, fmt.Sprintf("signed with key %s for source %s, which is not configured",
			shown(attrs["sigkid"]), shown(attrs["source"]))
	}
	return attrs, Reject, "bad signature"
}

// speaksFor reports whether the key may have signed an event: by its id, if the event names one, and by its source.
func (k SigningKey) speaksFor(attrs attributes) bool {
	kid := attrs["sigkid"]
	return k.Source == attrs["source"] && (kid == "" || kid == k.ID)
}

// verifySignature compares in constant time. A secret that became too short through its file verifies nothing.
func verifySignature(secret string, attrs attributes, sum [sha256.Size]byte) bool {
	text, ok := strings.CutPrefix(attrs["sig"], signaturePrefix)
	if !ok || len(secret) < MinSigningSecret {
		return false
	}
	sent, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(canonical(attrs, sum))
	return hmac.Equal(sent, mac.Sum(nil))
}

// canonical is the text that is signed: the domain, every attribute as a presence byte and, when present, its length and
// bytes, and the SHA-256 of the body.
func canonical(attrs attributes, sum [sha256.Size]byte) []byte {
	text := []byte(signatureDomain)
	for _, name := range signedAttributes {
		value, present := attrs[name]
		if !present {
			text = append(text, 0)
			continue
		}
		text = append(text, 1)
		text = binary.BigEndian.AppendUint32(text, uint32(len(value)))
		text = append(text, value...)
	}
	return append(text, sum[:]...)
}
