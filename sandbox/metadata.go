package sandbox

import (
	"encoding/json"
	"math/rand/v2"
)

// partialMetadata names the data sources that failed, in the form of the era.
func partialMetadata(era Era, random *rand.Rand) json.RawMessage {
	source := pick(random, "midaz_onboarding", "midaz_transaction", "external_crm")
	if era == V1 {
		return encoded(map[string]any{
			"sections": []map[string]string{{"database": source}},
			"error":    "some data sources could not be read",
		})
	}
	sections := map[string]any{source: map[string]string{"error_code": "report_generation_timeout"}}
	if random.IntN(2) == 0 {
		sections["plugin_fees"] = map[string]string{"error_code": "report_generation_failed"}
	}
	return encoded(map[string]any{"sections": sections, "error": "Some report data sections failed", "error_code": "0287"})
}

// errorMetadata tells why nothing came of a report, in the form of the era.
func errorMetadata(era Era) json.RawMessage {
	if era == V1 {
		return encoded(map[string]any{"error": "template could not be rendered"})
	}
	return encoded(map[string]any{
		"error_code": "report_generation_failed",
		"error": map[string]string{
			"code": "report_generation_failed", "title": "Report Generation Failed", "message": "template could not be rendered",
		},
	})
}

func encoded(value any) json.RawMessage {
	data, _ := json.Marshal(value) // maps of strings can't fail
	return data
}
