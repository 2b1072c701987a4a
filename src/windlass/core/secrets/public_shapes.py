"""The public prefixes that issuers give their keys, as data.

The facts (prefix, alphabet and length of each kind of key) have two sources:

- `gitleaks`: the default rules of gitleaks (https://github.com/gitleaks/gitleaks),
  `config/gitleaks.toml` at commit 009e025a, read on 2026-11-15. MIT licence, copyright (c) 2019
  Zachary Rice.
- `issuer`: kinds that these rules do not list, as their issuers are known to write them; not
  checked against the issuers' documentation.

Only these facts were taken over: no pattern and no code. A key counts if it is a little shorter
than its issuer makes them today, because lengths change more often than prefixes do. Kinds without
their own prefix are left out (they are found by the names of their variables), and so are
kinds that are public by design.
"""

from typing import Literal, NamedTuple

Alphabet = Literal[
    "hex", "plain", "words", "dashed", "dotted", "path", "base64", "percent", "header"
]
"""Which characters may follow a prefix.

hex: 0-9 a-f A-F. plain: letters and digits. words: and `_`. dashed: and `-`. dotted: and `.`.
path: letters, digits, `_`, `-` and `/`. base64: letters, digits, `+`, `/` and `=`.
percent: letters, digits and `%`. header: whatever an HTTP header allows in a token.
"""


class PublicShape(NamedTuple):
    """How the keys of one kind look: the prefix, and what follows it."""

    issuer: str
    prefix: str
    alphabet: Alphabet
    chars_min: int
    chars_max: int | None = None
    """None if longer ones are keys as well."""
    is_glued: bool = False
    """Whether the prefix may follow a letter or digit that belongs to the same key."""
    source: Literal["gitleaks", "issuer"] = "gitleaks"
    form: str = ""
    """What the text after the prefix begins with, where alphabet and length say too little."""


_SLACK_PATH = r"[A-Z0-9]{6,}(?:/[A-Za-z0-9]+)*/[A-Za-z0-9]{16,}"
PUBLIC_SHAPES: tuple[PublicShape, ...] = (
    # Webhooks: anyone who knows the address may post.
    PublicShape("Slack webhook", "/services/T", "path", 32, form=_SLACK_PATH),
    PublicShape("Slack workflow", "/workflows/T", "path", 32, form=_SLACK_PATH),
    PublicShape("Slack trigger", "/triggers/T", "path", 32, form=_SLACK_PATH),
    PublicShape(
        "Discord webhook", "/webhooks/", "path", 70, source="issuer", form=r"[0-9]{15,22}/[\w-]{50}"
    ),
    PublicShape(
        "Microsoft Teams webhook",
        "IncomingWebhook/",
        "path",
        60,
        form=r"[a-f0-9]{32}/[a-f0-9-]{36}",
    ),
    # Our own.
    PublicShape("Windlass", "wb_", "dashed", 50, source="issuer", form=r"[0-9a-f]{12}_"),
    PublicShape("Windlass", "wl_", "dashed", 50, source="issuer", form=r"[0-9a-f]{12}_"),
    PublicShape("Windlass", "wp_", "hex", 60, source="issuer"),
    PublicShape("Windlass login code", "#login=", "dashed", 40, source="issuer", form=r"[\w-]{40}"),
    # Models.
    PublicShape("xAI", "xai-", "plain", 60, source="issuer"),
    PublicShape("Perplexity", "pplx-", "plain", 40),
    PublicShape("NVIDIA", "nvapi-", "dashed", 40, source="issuer"),
    PublicShape("Replicate", "r8_", "plain", 30, source="issuer"),
    PublicShape("Hugging Face organization", "api_org_", "plain", 30),
    PublicShape("LangSmith", "lsv2_pt_", "words", 32, source="issuer"),
    PublicShape("LangSmith service", "lsv2_sk_", "words", 32, source="issuer"),
    PublicShape("Pinecone", "pcsk_", "words", 40, source="issuer"),
    PublicShape("Tavily", "tvly-", "dashed", 28, source="issuer"),
    # Clouds and hosting.
    PublicShape("Azure storage", "AccountKey=", "base64", 40, source="issuer"),
    PublicShape("Azure service bus", "SharedAccessKey=", "base64", 40, source="issuer"),
    PublicShape("Azure shared access signature", "sig=", "percent", 40, 80, source="issuer"),
    PublicShape("Azure AD client secret", "Q~", "dotted", 31, 34, is_glued=True),
    PublicShape("Alibaba Cloud", "LTAI", "plain", 16, 24),
    PublicShape("DigitalOcean", "dop_v1_", "hex", 60),
    PublicShape("DigitalOcean OAuth", "doo_v1_", "hex", 60),
    PublicShape("DigitalOcean refresh", "dor_v1_", "hex", 60),
    PublicShape("Google OAuth client", "GOCSPX-", "dashed", 24, source="issuer"),
    PublicShape("Google OAuth access", "ya29.", "dashed", 20, source="issuer"),
    PublicShape("Databricks", "dapi", "hex", 32),
    PublicShape("Cloudflare origin CA", "v1.0-", "dashed", 150),
    PublicShape("Fly.io", "fo1_", "dashed", 40),
    PublicShape("Fly.io macaroon", "fm1r_", "base64", 90),
    PublicShape("Fly.io macaroon", "fm2_", "base64", 90),
    PublicShape("OpenShift", "sha256~", "dashed", 40),
    PublicShape("Pulumi", "pul-", "hex", 38),
    PublicShape("PlanetScale", "pscale_tkn_", "header", 30),
    PublicShape("PlanetScale OAuth", "pscale_oauth_", "header", 30),
    PublicShape("PlanetScale password", "pscale_pw_", "header", 30),
    PublicShape("Scalingo", "tk-us-", "dashed", 44),
    PublicShape("Supabase", "sbp_", "hex", 38, source="issuer"),
    PublicShape("Docker Hub", "dckr_pat_", "dashed", 24, source="issuer"),
    PublicShape("Terraform Cloud", ".atlasv1.", "header", 58),
    PublicShape("Heroku", "HRKU-AA", "dashed", 56),
    PublicShape("Infracost", "ico-", "plain", 30),
    PublicShape("Netlify", "nfp_", "plain", 36, source="issuer"),
    # Secrets of secret stores.
    PublicShape("Vault service", "hvs.", "dashed", 24),
    PublicShape("Vault batch", "hvb.", "dashed", 90),
    PublicShape("Vault recovery", "hvr.", "dashed", 90, source="issuer"),
    PublicShape("Doppler", "dp.pt.", "plain", 40),
    PublicShape("1Password service account", "ops_eyJ", "base64", 200),
    PublicShape("age", "AGE-SECRET-KEY-1", "plain", 56),
    # Code, packages and issues.
    PublicShape("GitLab deploy", "gldt-", "dashed", 18),
    PublicShape("GitLab feed", "glft-", "dashed", 18),
    PublicShape("GitLab trigger", "glptt-", "hex", 38),
    PublicShape("GitLab runner", "glrt-", "dashed", 18),
    PublicShape("GitLab job", "glcbt-", "dashed", 18),
    PublicShape("GitLab agent", "glagent-", "dashed", 40),
    PublicShape("Atlassian", "ATATT3", "header", 100),
    PublicShape("RubyGems", "rubygems_", "hex", 46),
    PublicShape("Clojars", "CLOJARS_", "plain", 56),
    PublicShape("Linear", "lin_api_", "plain", 36),
    PublicShape("Notion", "ntn_", "plain", 42),
    PublicShape("Postman", "PMAK-", "dashed", 54),
    PublicShape("Prefect", "pnu_", "plain", 34),
    PublicShape("ReadMe", "rdme_", "plain", 64),
    PublicShape("Sourcegraph", "sgp_", "words", 38),
    PublicShape("Figma", "figd_", "dashed", 36, source="issuer"),
    PublicShape("Typeform", "tfp_", "header", 50),
    PublicShape("Frame.io", "fio-u-", "header", 56),
    # Watching.
    PublicShape("Grafana Cloud", "glc_", "base64", 32),
    PublicShape("Grafana service account", "glsa_", "words", 38),
    PublicShape("Sentry user", "sntryu_", "hex", 60),
    PublicShape("Sentry organization", "sntrys_", "header", 80),
    PublicShape("New Relic user", "NRAK-", "plain", 25),
    PublicShape("New Relic insert", "NRII-", "dashed", 30),
    PublicShape("Dynatrace", "dt0c01.", "dotted", 80),
    # Mail, messages and money.
    PublicShape("SendGrid", "SG.", "header", 60),
    PublicShape("Brevo", "xkeysib-", "dashed", 76),
    PublicShape("Mailgun", "key-", "hex", 32, 32),
    PublicShape("Telegram bot", ":AA", "dashed", 32, 35),
    PublicShape("Twilio", "SK", "hex", 32, 32),
    PublicShape("Stripe test", "sk_test_", "plain", 16),
    PublicShape("Stripe restricted test", "rk_test_", "plain", 16),
    PublicShape("Stripe webhook", "whsec_", "base64", 30, source="issuer"),
    PublicShape("Square", "sq0atp-", "dashed", 22),
    PublicShape("Square OAuth", "sq0csp-", "dashed", 40, source="issuer"),
    PublicShape("Shopify", "shpat_", "hex", 30),
    PublicShape("Shopify custom app", "shpca_", "hex", 30),
    PublicShape("Shopify private app", "shppa_", "hex", 30),
    PublicShape("Shopify shared secret", "shpss_", "hex", 30),
    PublicShape("Shippo", "shippo_live_", "hex", 38),
    PublicShape("EasyPost", "EZAK", "plain", 50),
    PublicShape("Duffel", "duffel_live_", "header", 40),
    PublicShape("Flutterwave", "FLWSECK_TEST-", "dashed", 32),
    PublicShape("Adobe", "p8e-", "plain", 30),
)
