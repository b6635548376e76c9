package sandbox

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// access is Access Manager as the Reporter meets it: tokens with an end, and a fixed one.
type access struct {
	fixed, clientID, clientSecret string
	ttl                           time.Duration

	mu     sync.Mutex
	number int
	given  map[string]time.Time // token to its end
}

func newAccess(o ReporterOptions) *access {
	return &access{fixed: o.Token, clientID: o.ClientID, clientSecret: o.ClientSecret, ttl: o.TokenTTL, given: map[string]time.Time{}}
}

// check returns 200, or the status and the plain text of the refusal.
func (a *access) check(h http.Header) (status int, text string) {
	if a.fixed == "" && a.clientID == "" {
		return http.StatusOK, ""
	}
	header := h.Get("Authorization")
	if header == "" {
		return http.StatusUnauthorized, "Missing Token"
	}
	token, ok := strings.CutPrefix(header, "Bearer ")
	switch {
	case ok && token != "" && token == a.fixed, ok && a.valid(token):
		return http.StatusOK, ""
	case !ok || strings.Count(token, ".") != 2:
		return http.StatusInternalServerError, "Internal Server Error" // the contract's answer to a malformed token
	default:
		return http.StatusUnauthorized, "Unauthorized"
	}
}

func (a *access) valid(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ends, ok := a.given[token]
	return ok && time.Now().Before(ends)
}

// issue answers the token endpoint.
func (a *access) issue(req *http.Request) *answer {
	var asked struct{ GrantType, ClientID, ClientSecret string }
	media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, 1<<16)).Decode(&asked)
	switch {
	case media != "application/json" || err != nil:
		return tokenError(http.StatusBadRequest, "Bad Request", "the body must be JSON")
	case asked.GrantType != "client_credentials":
		return tokenError(http.StatusBadRequest, "Unsupported Grant Type", "only client_credentials is known")
	case a.clientID == "" || asked.ClientID != a.clientID || asked.ClientSecret != a.clientSecret:
		return tokenError(http.StatusUnauthorized, "Invalid Client", "the client is unknown or its secret is wrong")
	}
	return jsonAnswer(http.StatusOK, map[string]any{
		"accessToken": a.give(), "tokenType": "Bearer", "refreshToken": "", "scope": "",
		"expiresIn": int((a.ttl + time.Second - 1) / time.Second),
	})
}

// tokenError carries its code as a number, as the contract warns.
func tokenError(status int, title, message string) *answer {
	return jsonAnswer(status, map[string]any{"code": status, "title": title, "message": message})
}

func (a *access) give() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for token, ends := range a.given {
		if !now.Before(ends) {
			delete(a.given, token)
		}
	}
	a.number++
	token := fmt.Sprintf("sandbox.%d.%s", a.number, newID())
	a.given[token] = now.Add(a.ttl)
	return token
}

// RevokeTokens makes every token that was given so far worthless, before its time.
func (r *Reporter) RevokeTokens() {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	clear(r.access.given)
}

// Deny answers the named classes of request with 403, token or not, and lets the others pass: some deployments grant
// only the download. Without a class nothing is denied.
func (r *Reporter) Deny(classes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.denied)
	for _, class := range classes {
		r.denied[class] = true
	}
}

// allowed checks rate limit, token and denial, and answers the request that fails one.
func (r *Reporter) allowed(w http.ResponseWriter, req *http.Request, class string) bool {
	if !r.limits.take(w.Header(), req, class) {
		r.counted.limited.Add(1)
		r.send(w, req, r.options.Era.refusal(tooMany))
		return false
	}
	status, text := r.access.check(req.Header)
	r.mu.Lock()
	denied := r.denied[class]
	r.mu.Unlock()
	if status == http.StatusOK && denied {
		status, text = http.StatusForbidden, "Forbidden"
	}
	if status != http.StatusOK {
		r.counted.unauthorised.Add(1)
		plain(w, status, text)
		return false
	}
	return true
}
