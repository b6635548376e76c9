package sandbox

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// askToken asks the token endpoint as Access Manager wants it.
func askToken(t *testing.T, r *Reporter, id, secret string) reply {
	t.Helper()
	return postToken(t, r, "application/json", `{"grantType":"client_credentials","clientId":"`+id+`","clientSecret":"`+secret+`"}`)
}

func postToken(t *testing.T, r *Reporter, media, body string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL()+"/v1/login/oauth/access_token", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", media)
	return send(t, request)
}

// newToken asks for a token and returns it.
func newToken(t *testing.T, r *Reporter) string {
	t.Helper()
	got := askToken(t, r, "client", "secret")
	got.want(t, 200, `"tokenType":"Bearer"`)
	var token struct {
		AccessToken string
		ExpiresIn   int
	}
	if err := json.Unmarshal([]byte(got.body), &token); err != nil || token.ExpiresIn < 1 {
		t.Fatalf("token %q: %v", got.body, err)
	}
	return token.AccessToken
}

func TestRequestsNeedAToken(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{Token: "fixed", ClientID: "client", ClientSecret: "secret"})
	given := newToken(t, r)
	for header, want := range map[string]struct {
		status int
		text   string
	}{
		"":                   {401, "Missing Token"},
		"Bearer fixed":       {200, `"items"`},
		"Bearer " + given:    {200, `"items"`},
		"Bearer nonsense":    {500, ""}, // malformed
		"Basic Zm9vOmJhcg==": {500, ""},
		"Bearer a.b.c":       {401, ""}, // well formed and not given
	} {
		var pairs []string
		if header != "" {
			pairs = []string{"Authorization", header}
		}
		got := fetch(t, r.URL()+"/v1/reports", pairs...)
		got.want(t, want.status, want.text)
		if plain := strings.HasPrefix(got.header.Get("Content-Type"), "text/plain"); plain != (want.status != 200) {
			t.Errorf("%q: header %v", header, got.header)
		}
	}
	if n := r.Requests(); n.Unauthorised != 4 || n.Tokens != 1 || n.Lists != 6 {
		t.Errorf("counted %+v", n)
	}
}

func TestTheTokenEndpointRefuses(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{ClientID: "client", ClientSecret: "secret"})
	for name, got := range map[string]reply{
		"a wrong secret":   askToken(t, r, "client", "wrong"),
		"a stranger":       askToken(t, r, "other", "secret"),
		"a form":           postToken(t, r, "application/x-www-form-urlencoded", "grant_type=client_credentials"),
		"another grant":    postToken(t, r, "application/json", `{"grantType":"password","clientId":"client","clientSecret":"secret"}`),
		"what is no JSON":  postToken(t, r, "application/json", `{`),
		"an empty request": postToken(t, r, "application/json", ``),
	} {
		var body struct {
			Code  int
			Title string
		}
		if err := json.Unmarshal([]byte(got.body), &body); err != nil || got.status/100 != 4 || body.Code != got.status || body.Title == "" {
			t.Errorf("%s: %d %q, %v", name, got.status, got.body, err)
		}
	}
	none := openReporter(t, ReporterOptions{})
	if got := askToken(t, none, "", ""); got.status != 401 {
		t.Errorf("a Reporter without clients gave a token: %d", got.status)
	}
}

func TestTokensEnd(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{ClientID: "client", ClientSecret: "secret", TokenTTL: 50 * time.Millisecond})
	token := newToken(t, r)
	eventually(t, "the token expires", func() bool {
		return fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer "+token).status == 401
	})

	r = openReporter(t, ReporterOptions{ClientID: "client", ClientSecret: "secret"})
	token = newToken(t, r)
	r.RevokeTokens()
	fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer "+token).want(t, 401, "")
	fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer "+newToken(t, r)).want(t, 200, "")
}

func TestClassesMayBeDenied(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{}).ID
	r.Deny(ClassGet, ClassList)
	fetch(t, r.URL()+"/v1/reports").want(t, 403, "Forbidden")
	fetch(t, r.URL()+"/v1/reports/"+id).want(t, 403, "Forbidden")
	fetch(t, r.download(id)).want(t, 200, "%PDF")
	r.Deny()
	fetch(t, r.URL()+"/v1/reports/"+id).want(t, 200, id)
}

func TestRateLimitsOfTheClassesAreApart(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{DownloadLimit: 2, GetLimit: 3})
	id := r.Add(Report{}).ID
	for left := range 2 {
		got := fetch(t, r.download(id))
		got.want(t, 200, "")
		if got.header.Get("X-RateLimit-Limit") != "2" || got.header.Get("X-RateLimit-Remaining") != string(rune('1'-left)) ||
			got.header.Get("X-RateLimit-Reset") == "" || got.header.Get("Retry-After") != "" {
			t.Errorf("header %v", got.header)
		}
	}
	got := fetch(t, r.download(id))
	got.want(t, 429, `"code"`)
	if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
	for _, path := range []string{"/v1/reports", "/v1/reports/" + id, "/v1/reports"} { // descriptions and lists share theirs
		fetch(t, r.URL()+path).want(t, 200, "")
	}
	fetch(t, r.URL()+"/v1/reports").want(t, 429, "")
	if n := r.Requests(); n.Limited != 2 || n.Downloads != 3 || n.DownloadsStarted != 2 {
		t.Errorf("counted %+v", n)
	}
	r.SetLimits(0, 1, time.Hour)
	got = fetch(t, r.download(id))
	if got.want(t, 200, ""); got.header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("header without a limit %v", got.header)
	}
}

func TestAWindowEnds(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{GetLimit: 1, Window: 100 * time.Millisecond})
	fetch(t, r.URL()+"/v1/reports").want(t, 200, "")
	eventually(t, "a new window begins", func() bool { return fetch(t, r.URL()+"/v1/reports").status == 200 })
}
