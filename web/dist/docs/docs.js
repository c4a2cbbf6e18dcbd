// Shows the server's OpenAPI document, in the colours that the system prefers.

const dark = matchMedia('(prefers-color-scheme: dark)');
const colours = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
colours();
dark.addEventListener('change', colours);

SwaggerUIBundle({
  url: '../openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  docExpansion: 'none',
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null, // nothing leaves this machine
});
